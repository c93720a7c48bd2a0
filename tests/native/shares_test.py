#!/usr/bin/env python3
"""Users beside each other: what one user's processes, sockets and labels leave of another's; forked children that own
nothing; and a rank that somebody else claims to be.

    shares_test.py KITTY [--churn PROGRAM] [--cases NAME,...] [--measure OTHER_KITTY]

PROGRAM is churn.cpp's, by default beside KITTY. --measure runs another build of kitty through the case `workers`, too,
for its figures alone. Needs root. Runs in a pid namespace of its own, so that no other watched process of this machine
is in the figures. Exit status 0 when every case holds.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "training"))
from cluster import Cluster  # noqa: E402
from lab import OWN_PIDS, TRAFFIC, Agent, Fault, Lab, Missing, choose, expect, fetch, isolate, run_cases  # noqa: E402

AGENT_PORT = 9380
ECHO_PORT = 7001
REFRESH_S = 5
SLACK_S = 20  # for a machine that is busy with other tests
CROWD_UID, RANK_UID, FORGER_UID = 65533, 65532, 65531
CROWD, PLACES = 1100, 1024
LABELLED, LABEL = 300, '"' * 128  # each character is escaped
PAIRS = 4400  # 8,800 sockets
TEXT_LIMIT = 4 << 20
MEASURED_S = 20
RANKS, SOCKETS = 8, 4
WATCH = {"KITTY_WATCH": "1", "JOB_NAME": "train"}

# Starts so many idle processes, each with a rank of its own (or they would be workers), and says so; they end with its
# stdin.
CROWD_PROGRAM = """
import os, sys
def environment(i):
    rank = f"{i:04}"
    return {**os.environ, "RANK": rank + os.environ.get("RANK", "")[len(rank):]}
children = [os.posix_spawn("/usr/bin/sleep", ["sleep", "900"], environment(i)) for i in range(int(sys.argv[1]))]
print("ready", flush=True)
sys.stdin.read()
for pid in children: os.kill(pid, 9)
for pid in children: os.waitpid(pid, 0)
"""

# A rank with a few connections and a message now and then, and so many forked children that hold them, too, and rest.
RANK_PROGRAM = """
import os, select, signal, socket, sys, time
port, sockets, workers = map(int, sys.argv[1:])
def connect():
    for attempt in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.1)  # not listening yet
connections = [connect() for _ in range(sockets)]
children = []
for _ in range(workers):
    if (pid := os.fork()) == 0:
        signal.pause()
        os._exit(0)
    children.append(pid)
print("ready", flush=True)
while not select.select([0], [], [], 0.1)[0]:
    for connection in connections:
        connection.sendall(bytes(20000))
        connection.recv(1)
for pid in children: os.kill(pid, 9)
for pid in children: os.waitpid(pid, 0)
"""


# Traffic of other users: a copy of lab.py that they may read, made by main().
traffic = list(TRAFFIC)


class SharesAgent(Agent):
    # Everything but histograms' buckets, which would be most of the lines.
    WANTED = re.compile("(?!kitty_tcp_rtt_seconds_bucket)(net_tcp_|kitty_|process_)")


def as_user(uid):
    if not shutil.which("setpriv"):
        raise Missing("setpriv (package util-linux)")
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


class Crowd(Lab):
    """A lab with programs of other users, which end with their stdin."""

    def spawn(self, namespace, command, **environment):
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, "env", *(f"{k}={v}" for k, v in environment.items()), *command],
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def spawn_ready(self, namespace, command, **environment):
        process = self.spawn(namespace, command, **environment)
        expect(process.stdout.readline() == "ready\n", f"{command[:6]}: expected it to be ready")
        return process

    def idle(self, namespace, count, uid, **environment):
        return self.spawn_ready(
            namespace, [*as_user(uid), sys.executable, "-IS", "-c", CROWD_PROGRAM, str(count)], **environment
        )

    def stop(self, *processes):
        for process in processes:
            if process.stdin:
                process.stdin.close()  # its children end with it
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    pass
        super().stop(*processes)

    def rank(self, namespace, agent, uid=RANK_UID, rank="3"):
        """A rank with one busy connection, once it is shown; its process and its labels."""
        sender = self.start(
            namespace, *as_user(uid), *traffic, "send", "127.0.0.1", str(ECHO_PORT), "--interval", "0.02",
            RANK=rank, **WATCH,
        )
        labels = {"pid": str(sender.pid), "rank": rank, "job": "train"}
        agent.wait(
            f"rank {rank} of user {uid}",
            lambda s: s.find("kitty_process_info", role="rank", uid=str(uid), **labels),
            2 * REFRESH_S + SLACK_S,
        )
        return sender, labels


def dropped(scrape, uid, what):
    return scrape.value("kitty_dropped_by_uid", uid=str(uid), what=what) or 0


def wait_for_figures(agent, labels):
    return agent.wait(
        "the rank's peers and bytes",
        lambda s: s.value("kitty_peer_busy_seconds_total", **labels) and s.value("kitty_tcp_bytes_sent_total", **labels),
        2 * REFRESH_S + SLACK_S,
    )


def long_labels(kitty, _):
    """A thousand idle processes of one user with the longest labels: the text is full, and another user's rank has all
    its series."""
    with Crowd() as lab, SharesAgent(kitty, port=AGENT_PORT) as agent:
        namespace = lab.namespace("labels")
        labels = {"RANK": LABEL, "JOB_NAME": LABEL, "LOCAL_RANK": LABEL, "WORLD_SIZE": LABEL}
        lab.start_echo(namespace, "127.0.0.1", ECHO_PORT)
        lab.idle(namespace, LABELLED, CROWD_UID, KITTY_WATCH="1", **labels)
        agent.wait(f"{LABELLED} processes", lambda s: len(s.find("kitty_process_info", uid=str(CROWD_UID))) >= LABELLED,
                   2 * REFRESH_S + SLACK_S)
        sender, rank = lab.rank(namespace, agent)
        wait_for_figures(agent, rank)
        lab.idle(namespace, PLACES - LABELLED - 10, CROWD_UID, KITTY_WATCH="1", **labels)
        agent.wait("the crowd", lambda s: len(s.find("kitty_process_info", uid=str(CROWD_UID))) > 900,
                   2 * REFRESH_S + SLACK_S)
        scrape = wait_for_figures(agent, rank)
        text = fetch("127.0.0.1", AGENT_PORT, "/metrics")
        figures = (
            f"{len(scrape.find('kitty_process_info'))} processes in {len(text) >> 10} KiB; left out "
            f"{dropped(scrape, CROWD_UID, 'series'):.0f} series of the crowd, {dropped(scrape, RANK_UID, 'series'):.0f} "
            "of the rank"
        )
        expect(len(text) <= TEXT_LIMIT, figures)
        expect(dropped(scrape, CROWD_UID, "series") > 0, f"the text is not full: {figures}")
        expect(dropped(scrape, RANK_UID, "series") == 0, figures)
        for name in ("net_tcp_out_segs_total", "kitty_peer_rtt_seconds_sum", "kitty_process_address_info"):
            expect(scrape.find(name, **rank), f"{name} is missing: {figures}")
        lab.stop(sender)
        agent.stop(5)
        return figures


def places(kitty, _):
    """1,100 processes of one user, and then a rank of another: it is watched."""
    with Crowd() as lab, SharesAgent(kitty, port=AGENT_PORT) as agent:
        namespace = lab.namespace("places")
        lab.start_echo(namespace, "127.0.0.1", ECHO_PORT)
        lab.idle(namespace, CROWD, CROWD_UID, KITTY_WATCH="1")
        full = agent.wait(
            f"{PLACES} watched and the rest counted",
            lambda s: s.value("kitty_watched_processes") == PLACES and dropped(s, CROWD_UID, "processes") > 0,
            2 * REFRESH_S + SLACK_S,
        )
        sender, labels = lab.rank(namespace, agent)
        scrape = wait_for_figures(agent, labels)
        time.sleep(2 * REFRESH_S)
        agent.check()
        last = agent.scrapes[-1]
        figures = (
            f"{full.value('kitty_watched_processes'):.0f} watched, then the rank; left out of the crowd "
            f"{dropped(full, CROWD_UID, 'processes'):.0f} -> {dropped(scrape, CROWD_UID, 'processes'):.0f}"
        )
        expect(last.find("kitty_peer_busy_seconds_total", **labels), f"the rank did not stay: {figures}")
        expect(dropped(last, RANK_UID, "processes") == 0, figures)
        expect(last.value("kitty_watched_processes") == PLACES, figures)
        lab.stop(sender)
        agent.stop(5)
        return figures


def sockets(kitty, program):
    """8,800 sockets in one process, then ranks of another user and of the same: their bytes are what the kernel says,
    and the crowd's, which are not all followed, are absent and never 0."""
    with Crowd() as lab, SharesAgent(kitty, port=AGENT_PORT) as agent:
        namespace = lab.namespace("sockets")
        lab.start_echo(namespace, "127.0.0.1", ECHO_PORT)
        hold = ["prlimit", "--nofile=20000:20000", *as_user(CROWD_UID), program, "hold", str(PAIRS)]
        crowd = lab.spawn_ready(namespace, hold, KITTY_WATCH="1", RANK="0", JOB_NAME="crowd")
        agent.wait("the limit", lambda s: dropped(s, CROWD_UID, "sockets") > 0, 2 * REFRESH_S + SLACK_S)
        both = [lab.rank(namespace, agent, uid, rank) for uid, rank in ((RANK_UID, "3"), (CROWD_UID, "4"))]
        shown = []
        for sender, labels in both:
            wait_for_figures(agent, labels)
        time.sleep(2 * REFRESH_S)
        agent.check()
        scrape = agent.scrapes[-1]
        for sender, labels in both:
            series = agent.series("kitty_tcp_bytes_sent_total", 0, **labels)
            expect(series and series[-1][1] > 100_000, f"rank {labels['rank']} shows {series[-1:]} bytes")
            shown.append(f"rank {labels['rank']} {series[-1][1] / 1e6:.1f} MB")
        own = [
            name
            for name in ("kitty_tcp_bytes_sent_total", "kitty_tcp_segments_sent_total", "net_tcp_tx_queue_bytes",
                         "kitty_peer_segments_sent_total")
            if scrape.find(name, pid=str(crowd.pid))
        ]
        figures = (
            f"{', '.join(shown)}; {dropped(scrape, CROWD_UID, 'sockets'):.0f} sockets of the crowd left out, "
            f"{dropped(scrape, RANK_UID, 'sockets'):.0f} of the rank's user"
        )
        expect(not own, f"the crowd's {own} are not known: {figures}")
        expect(scrape.find("kitty_process_info", pid=str(crowd.pid)), f"the crowd is not shown: {figures}")
        expect(dropped(scrape, RANK_UID, "sockets") == 0, figures)
        expect(scrape.value("kitty_flow_table_full_total", table="owned") == 0, f"the flow table was full: {figures}")
        lab.stop(crowd, *(sender for sender, _ in both))
        agent.stop(5)
        return figures


def busy_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_workers(kitty, workers, timed):
    """(series, lines of the ranks' children, share of a core, RSS in MiB) with 8 ranks and their forked children; the
    last two of MEASURED_S where that is `timed`."""
    with Crowd() as lab, SharesAgent(kitty, port=AGENT_PORT) as agent:
        namespace = lab.namespace("workers")
        lab.start_echo(namespace, "127.0.0.1", ECHO_PORT)
        command = [sys.executable, "-IS", "-c", RANK_PROGRAM, str(ECHO_PORT), str(SOCKETS), str(workers)]
        for rank in range(RANKS):
            lab.spawn_ready(namespace, command, RANK=str(rank), **WATCH)
        agent.wait(
            "all processes",
            lambda s: len(s.find("kitty_process_info")) >= RANKS * (1 + workers),
            2 * REFRESH_S + SLACK_S,
        )
        time.sleep(2 * REFRESH_S)
        agent.stopping.set()  # a scrape's own price is not the children's
        agent.thread.join()
        began, spent = time.monotonic(), busy_seconds(agent.process.pid)
        time.sleep(MEASURED_S if timed else 1)
        share = (busy_seconds(agent.process.pid) - spent) / (time.monotonic() - began)
        text = fetch("127.0.0.1", AGENT_PORT, "/metrics")
        with open(f"/proc/{agent.process.pid}/status", encoding="ascii") as status:
            rss = int(re.search(r"VmRSS:\s*(\d+) kB", status.read())[1]) / 1024
        series = [line for line in text.splitlines() if line and line[0] != "#"]
        roles = [line for line in series if 'role="worker"' in line]
        return len(series), len(roles), share, rss


def workers(kitty, _, other=None):
    """8 ranks with 16, and with 64, forked children that hold the parent's sockets: a line each, and next to no time."""
    lines = []
    for count in (0, 16, 64):
        measured = {}
        for which, binary in (("before", other), ("", kitty)):
            if not binary:
                continue
            series, roles, share, rss = measured[which] = measure_workers(binary, count, bool(other))
            cost = f", {100 * share:.2f} % of a core, {rss:.1f} MiB" if other else ""
            lines.append(f"{count} each{', ' + which if which else ''}: {series} series, {roles} workers{cost}")
        series, roles, _, _ = measured[""]
        if count == 0:
            alone = series
        expect(roles == RANKS * count, f"expected {RANKS * count} workers: {'; '.join(lines)}")
        expect(series <= alone + RANKS * count + 8, f"expected a line each: {'; '.join(lines)}")
    return "\n    ".join(["", *lines])


def diagnose(kitty, seconds):
    """The verdicts by user."""
    command = [kitty, "diagnose", "--json", f"--window={seconds}s", f"127.0.0.1:{AGENT_PORT}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    expect(done.stdout.startswith("{"), f"diagnose said {done.stdout!r} {done.stderr!r}")
    return {job["uid"]: job for job in json.loads(done.stdout)["jobs"]}


def forged(kitty, _):
    """A job of three ranks is healthy, and stays so while another user claims rank 2, its address and slow traffic to
    the others; the same user's claim makes a blind spot of rank 2, and no name."""
    with Cluster("train") as cluster, SharesAgent(kitty, port=AGENT_PORT) as agent:
        nodes = [cluster.add_node() for _ in range(4)]
        for node in nodes:
            cluster.start_echo(node.namespace, node.address, ECHO_PORT)
        for rank, node in enumerate(nodes):
            for other in nodes:
                if other is node:
                    continue
                cluster.start(
                    node.namespace, *as_user(RANK_UID), *traffic, "send", other.address, str(ECHO_PORT),
                    "--interval", "0.01", "--bind", node.address, "0", RANK=str(rank), **WATCH,
                )
        agent.wait(
            "the job", lambda s: len(s.find("kitty_peer_rtt_seconds_count", job="train")) >= 12, REFRESH_S + SLACK_S
        )
        quiet = diagnose(kitty, 8)
        expect(set(quiet) == {str(RANK_UID)}, f"expected one job, seen {quiet}")
        expect(quiet[str(RANK_UID)]["verdict"] == "healthy", f"expected a healthy job: {quiet}")

        own = cluster.namespace("forger")
        for node in nodes:
            subprocess.run(["ip", "-n", own, "addr", "add", f"{node.address}/32", "dev", "lo"], check=True)

        said = {}
        for uid in (FORGER_UID, RANK_UID):
            started = [cluster.start_echo(own, node.address, ECHO_PORT) for node in nodes[:2]]
            with Fault(own, "tbf", "rate", "20mbit", "burst", "100kb", "latency", "400ms", device="lo"):
                for node in nodes[:2]:
                    started.append(
                        cluster.start(
                            own, *as_user(uid), *traffic, "send", node.address, str(ECHO_PORT), "--bytes", "400000",
                            "--bind", nodes[2].address, "0", RANK="2", **WATCH,
                        )
                    )
                agent.wait(
                    "the forger",
                    lambda s: any(
                        s.find("kitty_peer_rtt_seconds_count", pid=str(one.pid), peer=nodes[0].address)
                        for one in started
                    ),
                    REFRESH_S + SLACK_S,
                )
                said[uid] = diagnose(kitty, 10)
            cluster.stop(*started)
            time.sleep(REFRESH_S)
        by_another, by_the_same = said[FORGER_UID], said[RANK_UID]
        real = by_another.get(str(RANK_UID), {})
        figures = (
            f"beside another user's claim {real.get('verdict')} ({real.get('named') or 'nobody named'}), his "
            f"own {by_another.get(str(FORGER_UID), {}).get('verdict')}; claimed twice by one user "
            f"{by_the_same.get(str(RANK_UID), {}).get('verdict')}, {by_the_same.get(str(RANK_UID), {}).get('blind_spots')}"
        )
        expect(set(by_another) == {str(RANK_UID), str(FORGER_UID)}, figures)
        expect(real["verdict"] == "healthy" and not real["named"] and real["ranks"] == 4, figures)
        twice = by_the_same[str(RANK_UID)]
        expect(not twice["named"], figures)
        expect(any("rank 2 is claimed by 2 processes" in one for one in twice["blind_spots"]), figures)
        return figures


CASES = {case.__name__: case for case in (long_labels, places, sockets, workers, forged)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--churn")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--measure", metavar="OTHER_KITTY")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # of the pid namespace
    given = parser.parse_args()
    chosen = choose(parser, given.cases, CASES)
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    isolate(given.inside, *OWN_PIDS)
    built = os.path.abspath(given.churn or os.path.join(os.path.dirname(os.path.abspath(given.kitty)), "churn"))
    if not os.access(built, os.X_OK):
        print(f"SKIP: {built} is missing: build tests/native/churn.cpp")
        return 77
    with tempfile.TemporaryDirectory(prefix="kitty-shares-") as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(built, folder)  # where other users may read it
        traffic[-1] = shutil.copy(TRAFFIC[-1], folder)
        kitty = os.path.abspath(given.kitty)
        more = {workers: {"other": given.measure and os.path.abspath(given.measure)}}
        return run_cases(
            (case.__name__, lambda case=case: case(kitty, program, **more.get(case, {}))) for case in chosen
        )


if __name__ == "__main__":
    sys.exit(main())
