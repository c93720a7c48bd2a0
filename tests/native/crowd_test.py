#!/usr/bin/env python3
"""The agent on crowded hosts: processes and connections by the thousand that come and go, foreign sockets by the ten
thousand, too few file descriptors, a hundred peers.

    crowd_test.py KITTY [--churn PROGRAM] [--cases NAME,...]

PROGRAM is churn.cpp's, by default beside KITTY. Needs root. Runs in a pid namespace of its own, so that no other
watched process of this machine is in the figures, and takes about three minutes. Exit status 0 when every case holds.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import OWN_PIDS, Agent, Lab, choose, expect, isolate, run_cases, socket_of  # noqa: E402

AGENT_PORT = 9320
SERVE_PORT, ECHO_PORT = 7000, 7001
REFRESH_S = 5
SLACK_S = 10  # for a machine that is busy with other tests
CHURN_S, CONNECTIONS, PROCESSES = 45, 200_000, 5_000
WARM_UP_S = 8
FOREIGN_PAIRS, HOLDERS = 5_000, 5  # 50,000 sockets; two of them a pair, and a process may often hold 20,000 only
OPEN_FILES, WATCHED, LEFT = 64, 500, 10
PEERS, PEER_LIMIT = 100, 64
RSS_SLACK_BYTES = 1 << 20
COLLECTORS = ("processes", "sockets", "network", "rtt")
WATCH = {"KITTY_WATCH": "1", "JOB_NAME": "crowd"}


class CrowdAgent(Agent):
    # Everything but histograms' buckets, which would be most of the lines.
    WANTED = re.compile("(?!kitty_tcp_rtt_seconds_bucket)(net_tcp_|kitty_|process_)")


class Crowd:
    """A lab and the program churn.cpp in it."""

    def __init__(self, churn):
        self.churn = churn
        # Process ids begin anew in a pid namespace; its own number is the host's.
        self.lab = Lab(f"crowd-{os.stat('/proc/self/ns/pid').st_ino}")

    def __enter__(self):
        self.lab.__enter__()
        return self

    def __exit__(self, *error):
        self.lab.__exit__(*error)

    def start(self, namespace, *arguments, **environment):
        """Starts `churn ARGUMENTS`; it ends with its stdin, at the latest with the lab."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, self.churn, *map(str, arguments)],
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lab.processes.append(process)
        return process

    def start_ready(self, namespace, *arguments, **environment):
        process = self.start(namespace, *arguments, **environment)
        expect(process.stdout.readline() == "ready\n", f"churn {arguments}: expected it to be ready")
        return process

    def steady(self, namespace, agent):
        """A watched sender with one connection that lives on; returns it and its labels once it is shown."""
        # A socket that is older than the agent's first look counts from that on.
        agent.wait("a first look", lambda s: s.value("kitty_collector_success", collector="processes") == 1, SLACK_S)
        self.lab.start_echo(namespace, "127.0.0.1", ECHO_PORT)
        sender = self.lab.start_send(namespace, "127.0.0.1", ECHO_PORT, 0.02, RANK="0", **WATCH)
        labels = {"pid": str(sender.pid), "rank": "0", "job": "crowd"}
        agent.wait("the steady sender's RTT", lambda s: s.value("net_tcp_rtt_us", **labels), REFRESH_S + SLACK_S)
        return sender, labels


def total(scrape, name, **labels):
    """The sum over all series of that name, 0 where there is none."""
    return sum(value for _, value in scrape.find(name, **labels))


def size_of(agent):
    """(series, resident bytes, descriptors) of the agent now."""
    with open(f"/proc/{agent.process.pid}/status", encoding="ascii") as status:
        rss = int(re.search(r"VmRSS:\s*(\d+) kB", status.read())[1]) << 10
    return len(agent.scrapes[-1].samples), rss, len(os.listdir(f"/proc/{agent.process.pid}/fd"))


def failing(scrape):
    return [name for name in COLLECTORS if scrape.value("kitty_collector_success", collector=name) != 1]


def percentile(series, share):
    values = sorted(value for _, value in series)
    expect(values, "expected a series, seen no value of it")
    return values[min(len(values) - 1, int(share * len(values)))]


def gap(series):
    """The longest time a counter stood still."""
    longest, moved = 0.0, series[0]
    for point in series:
        if point[1] != moved[1]:
            moved = point
        longest = max(longest, point[0] - moved[0])
    return longest


def churn(kitty, program):
    """Thousands of short-lived processes and connections beside one that lives: nothing is left of them, and its
    counters are the kernel's."""
    with Crowd(program) as crowd, CrowdAgent(kitty, port=AGENT_PORT) as agent:
        namespace = crowd.lab.namespace("churn")
        crowd.start_ready(namespace, "serve", SERVE_PORT)
        sender, steady = crowd.steady(namespace, agent)

        def alone():
            """Waits until the steady sender is the only process shown, and a little longer; the agent's size then."""
            agent.wait("all others gone", lambda s: len(s.find("kitty_process_info")) == 1, REFRESH_S + SLACK_S)
            time.sleep(REFRESH_S + 2)
            agent.check()
            return size_of(agent)

        cold = alone()
        # A first small crowd: tables and text keep the room that a crowd needs, and that is once, not each time.
        small = [crowd.start(namespace, mode, SERVE_PORT, CONNECTIONS, WARM_UP_S) for mode in ("connect", "spawn")]
        for process in small:
            process.stdout.readline()
        crowd.lab.stop(*small)
        before = alone()
        began = time.monotonic()
        inode = socket_of(namespace, ECHO_PORT)["ino"]

        connecting = crowd.start(namespace, "connect", SERVE_PORT, CONNECTIONS, CHURN_S, RANK="1", **WATCH)
        spawning = crowd.start(namespace, "spawn", SERVE_PORT, PROCESSES, CHURN_S)
        most = 0
        while connecting.poll() is None and time.monotonic() < began + CHURN_S:
            agent.check()
            most = max(most, len(agent.scrapes[-1].find("kitty_process_info")))
            time.sleep(1)
        sent = re.fullmatch(r"connections (\d+) bytes (\d+) segments (\d+)\n", connecting.stdout.readline())
        expect(sent, "churn connect said nothing of what it sent")
        connections, sent_bytes, sent_segments = (int(number) for number in sent.groups())
        processes = int(spawning.stdout.readline().split()[1])
        time.sleep(3)  # a refresh and a tick: what the connections' last moments were is in the text
        churned = {"pid": str(connecting.pid), "job": "crowd"}
        scrape = agent.scrapes[-1]
        shown_bytes = scrape.value("kitty_tcp_bytes_sent_total", **churned)
        shown_segments = scrape.value("kitty_tcp_segments_sent_total", **churned)
        unattributed = total(scrape, "kitty_rtt_samples_unattributed_total")
        rss_during = size_of(agent)[1]
        crowd.lab.stop(connecting, spawning)

        after = alone()
        sender.send_signal(signal.SIGSTOP)
        time.sleep(REFRESH_S + 2)  # a pass over the sockets, two ticks and the text
        truth = socket_of(namespace, ECHO_PORT)
        scrape = agent.scrapes[-1]
        segments = scrape.value("kitty_tcp_segments_sent_total", **steady)
        sent_by_steady = scrape.value("kitty_tcp_bytes_sent_total", **steady)
        slowest = {
            name: percentile(agent.series("kitty_collector_duration_seconds", began, collector=name), 1)
            for name in COLLECTORS
        }
        figures = (
            f"{connections} connections, {processes} processes, at most {most} shown at once; "
            f"series {before[0]} -> {after[0]}, descriptors {before[2]} -> {after[2]}, RSS {before[1] >> 10} -> "
            f"{rss_during >> 10} -> {after[1] >> 10} KiB (before any crowd {cold[1] >> 10})\n"
            f"    churned: {shown_bytes:.0f} of {sent_bytes} bytes, {shown_segments:.0f} of {sent_segments} segments "
            f"attributed; {unattributed:.0f} samples unattributed\n"
            f"    steady: segments {segments:.0f}, TCP_INFO {truth['segs_out']}; "
            f"bytes {sent_by_steady:.0f}, TCP_INFO {truth['bytes_sent']}; collectors' slowest "
            + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in slowest.items())
        )
        expect(truth["ino"] == inode, f"the steady connection broke\n    {figures}")
        expect(processes > 1000 and connections > 10_000, f"too little churn to say anything\n    {figures}")
        expect(after[0] == before[0] == cold[0], f"expected as many series as before\n    {figures}")
        expect(after[2] == before[2] == cold[2], f"expected as many descriptors as before\n    {figures}")
        expect(after[1] <= before[1] + RSS_SLACK_BYTES, f"expected RSS at most 1 MiB up\n    {figures}")
        # Where no pass lists counters, a snapshot of them is taken at most once a millisecond, at an ACK, and tcp_probe
        # runs before the ACK counts: the message last sent and its ACK may be missing. A message is a segment on lo.
        expect(0 <= truth["segs_out"] - segments <= 4, f"steady segments differ\n    {figures}")
        expect(0 <= truth["bytes_sent"] - sent_by_steady <= 40_000, f"steady bytes differ\n    {figures}")
        # Each connection's last segments, its FIN or RST, come after it said what it had sent.
        expect(0 < shown_segments <= sent_segments + 2 * connections, f"churned segments wrong\n    {figures}")
        expect(0 < shown_bytes <= sent_bytes, f"churned bytes wrong\n    {figures}")
        expect(unattributed > 0, f"expected unattributed samples\n    {figures}")
        expect(not failing(scrape), f"failing collectors {failing(scrape)}\n    {figures}")
        agent.stop(2)
        return figures


def foreign(kitty, program):
    """50,000 sockets of others, on the host and in the watched namespace, do not slow the tick."""
    with Crowd(program) as crowd, CrowdAgent(kitty, port=AGENT_PORT) as agent:
        watched, other = crowd.lab.namespace("watched"), crowd.lab.namespace("other")
        _, steady = crowd.steady(watched, agent)

        def measure(seconds):
            since = time.monotonic()
            time.sleep(seconds)
            agent.check()
            took = {
                name: percentile(agent.series("kitty_collector_duration_seconds", since, collector=name), 0.99)
                for name in COLLECTORS
            }
            return took, gap(agent.series("kitty_tcp_rtt_seconds_count", since, **steady))

        before, _ = measure(10)
        for holder in range(HOLDERS):
            crowd.start_ready(watched if holder < 2 else other, "hold", FOREIGN_PAIRS)
        time.sleep(REFRESH_S)
        under, still = measure(20)
        durations = [f"{name} {before[name] * 1e3:.2f} -> {under[name] * 1e3:.2f} ms" for name in COLLECTORS]
        figures = (
            f"{2 * FOREIGN_PAIRS * HOLDERS} foreign sockets, RTT stood still for at most {still:.1f} s; "
            f"p99 of {', '.join(durations)}"
        )
        for name in ("network", "rtt"):
            expect(under[name] <= max(10 * before[name], 0.25), f"the tick's {name} slowed down: {figures}")
        expect(still <= 2, f"RTT did not keep moving: {figures}")
        expect(not failing(agent.scrapes[-1]), f"failing collectors {failing(agent.scrapes[-1])}: {figures}")
        agent.stop(2)
        return figures


def open_files(kitty, _):
    """More watched processes than descriptors: it serves on, says how many it left out, and takes them up later."""
    limited = ["prlimit", f"--nofile={OPEN_FILES}:{OPEN_FILES}"]
    with Lab() as lab, CrowdAgent(kitty, port=AGENT_PORT, prefix=limited) as agent:
        agent.wait("a first scrape", lambda s: s.samples, SLACK_S)
        refused = agent.refused
        sleepers = []
        for rank in range(WATCHED):
            environment = {"PATH": os.environ["PATH"], "RANK": str(rank), **WATCH}
            sleepers.append(subprocess.Popen(["sleep", "300"], env=environment))
            lab.processes.append(sleepers[-1])

        def left_out(scrape):
            return total(scrape, "kitty_processes_dropped") + total(scrape, "kitty_unreadable_processes")

        def shown(scrape):
            return len(scrape.find("kitty_process_info", job="crowd"))

        agent.wait(
            f"all {WATCHED} processes shown or counted as left out",
            lambda s: left_out(s) + shown(s) >= WATCHED,
            2 * REFRESH_S + SLACK_S,
        )
        time.sleep(2 * REFRESH_S)
        agent.check()
        crowded = agent.scrapes[-1]
        reasons = [
            f"{name}{labels} {value:.0f}"
            for name in ("kitty_processes_dropped", "kitty_unreadable_processes")
            for labels, value in crowded.find(name)
        ]
        lab.stop(*sleepers[:-LEFT])
        stopped = time.monotonic()
        agent.wait(
            f"the {LEFT} that are left, and none left out",
            lambda s: shown(s) == LEFT and left_out(s) == 0,
            2 * REFRESH_S + SLACK_S,
        )
        took = time.monotonic() - stopped
        figures = (
            f"{shown(crowded)} of {WATCHED} shown under a limit of {OPEN_FILES} descriptors; {'; '.join(reasons)}; "
            f"the {LEFT} left shown after {took:.1f} s; scrapes {len(agent.scrapes)}, refused {agent.refused - refused}"
        )
        expect(agent.refused == refused, f"a scrape was refused: {figures}")
        expect(left_out(crowded) + shown(crowded) >= WATCHED, f"some are neither shown nor counted: {figures}")
        expect(shown(crowded) >= 10, f"expected some to be shown: {figures}")
        agent.stop(2)
        return figures


def peers(kitty, program):
    """A process with a hundred peers: 64 of them by name, the rest as "other", and no scrape in which sums differ."""
    with Crowd(program) as crowd, CrowdAgent(kitty, port=AGENT_PORT) as agent:
        namespace = crowd.lab.namespace("peers")
        crowd.start_ready(namespace, "serve", SERVE_PORT)
        fan = crowd.start_ready(namespace, "peers", SERVE_PORT, PEERS, RANK="0", **WATCH)
        labels = {"pid": str(fan.pid), "rank": "0", "job": "crowd"}
        agent.wait("the process's RTT", lambda s: s.value("net_tcp_rtt_us", **labels), REFRESH_S + SLACK_S)
        since = time.monotonic()
        time.sleep(15)
        agent.check()
        pairs = (
            ("kitty_tcp_segments_sent_total", "kitty_peer_segments_sent_total"),
            ("kitty_tcp_retransmits_total", "kitty_peer_retransmits_total"),
            ("kitty_tcp_rtt_seconds_count", "kitty_peer_rtt_seconds_count"),
        )
        compared = 0
        for scrape in agent.scrapes:
            if scrape.value("kitty_tcp_segments_sent_total", **labels) is None:
                continue
            compared += 1
            for own, by_peer in pairs:
                # A histogram has no series before its first sample.
                value, over_peers = scrape.value(own, **labels) or 0, total(scrape, by_peer, **labels) or 0
                expect(value == over_peers, f"{own} {value:.0f}, but {by_peer} adds up to {over_peers:.0f}")
        last = agent.scrapes[-1]
        series = last.find("kitty_peer_segments_sent_total", **labels)
        names = [found["peer"] for found, _ in series]
        rest = dict((found["peer"], value) for found, value in series).get("other", 0)
        counted = agent.series("kitty_tcp_segments_sent_total", since, **labels)
        figures = (
            f"{compared} scrapes add up; {len(names)} peer series, {rest:.0f} of {counted[-1][1]:.0f} segments to "
            f'"other"; samples {last.value("kitty_tcp_rtt_seconds_count", **labels):.0f}'
        )
        expect(len(names) == len(set(names)) == PEER_LIMIT + 1 and "other" in names, f"seen {names}: {figures}")
        expect(all(re.fullmatch(r"127\.1\.0\.\d+|other", name) for name in names), f"seen {names}: {figures}")
        # All peers are sent as much: "other" is 36 of 100.
        expect(0.3 < rest / counted[-1][1] < 0.42, f"expected about 36 % to other: {figures}")
        expect(compared >= 10, f"expected more scrapes: {figures}")
        expect(counted[-1][1] > counted[0][1], f"expected traffic: {figures}")
        agent.stop(2)
        return figures


CASES = {case.__name__: case for case in (churn, foreign, open_files, peers)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--churn")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # of the pid namespace
    given = parser.parse_args()
    chosen = choose(parser, given.cases, CASES)
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    isolate(given.inside, *OWN_PIDS)
    kitty = os.path.abspath(given.kitty)
    program = os.path.abspath(given.churn or os.path.join(os.path.dirname(kitty), "churn"))
    if not os.access(program, os.X_OK):
        print(f"SKIP: {program} is missing: build tests/native/churn.cpp")
        return 77
    return run_cases((case.__name__, lambda case=case: case(kitty, program)) for case in chosen)


if __name__ == "__main__":
    sys.exit(main())
