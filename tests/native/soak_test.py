#!/usr/bin/env python3
"""The agent for a long time among processes and connections that come and go, hostile clients and scrapes: nothing grows.

    soak_test.py KITTY [--seconds S] [--churn PROGRAM]

Rounds of 30 s: 20 s of crowd_test.py's churn and hostile_test.py's attackers at once, then calm, in which the agent's
size is read. The rounds of the first minute are for tables and texts to get the room they need; after these, memory,
descriptors and threads must stay. PROGRAM is churn.cpp's, by default beside KITTY. Needs root. Runs in pid and network
namespaces of its own. Exit status 0 when all held.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from hostile_test import (  # noqa: E402
    ANSWER_LIMIT_S,
    REQUEST,
    STOP_LIMIT_S,
    Attackers,
    GoodWill,
    Swarm,
    Victim,
)
from lab import OWN_PIDS, Failure, Lab, isolate  # noqa: E402
from witness_test import expect  # noqa: E402

SERVE_PORT = 9490
ROUND_S, BUSY_S, WARM_UP_ROUNDS = 30, 20, 2
SCRAPE_INTERVAL_S = 0.2
CALM_LIMIT_S = 15  # two discoveries and slack
RSS_SLACK_BYTES = 1 << 20
GROWTH_LIMIT_BYTES = 8 << 20


def attackers():
    """Some of each kind, at a pace that leaves the machine something for the rest."""
    return [
        Swarm(100, b"GET /metrics HTTP/1.1\r\n", b"X-a: b\r\n", 1, opens_per_s=100),
        Swarm(1000, REQUEST, reads=False, opens_per_s=30, source="127.0.0.2"),
        Swarm(10, REQUEST * 500, opens_per_s=5, source="127.0.0.3"),
        Swarm(50, [b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"\x16\x03\x01" * 99], opens_per_s=50,
              source="127.0.0.4"),  # fmt: skip
    ]


class Reading:
    """The agent's size when it is calm."""

    def __init__(self, victim):
        # It opens descriptors for moments; what is there each time is what it holds.
        sizes = []
        for _ in range(10):
            sizes.append(victim.size())
            time.sleep(0.05)
        self.resident = max(size[0] for size in sizes)
        self.descriptors = min(size[1] for size in sizes)
        self.threads = len(os.listdir(f"/proc/{victim.process.pid}/task"))

    def __str__(self):
        return f"RSS {self.resident >> 10} KiB, {self.descriptors} descriptors, {self.threads} threads"


def start_churn(lab, program, *arguments, **environment):
    process = subprocess.Popen(
        [program, *map(str, arguments)],
        env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    lab.processes.append(process)
    return process


def go_round(lab, victim, program, good_will):
    """One round; returns what was going on in it."""
    ends = time.monotonic() + ROUND_S
    first, most_resident, most_shown = len(good_will.latencies), 0, 0

    def ask():
        nonlocal most_resident, most_shown
        started = time.monotonic()
        victim.check()
        try:
            good_will.ask()
        except OSError as error:
            raise Failure(f"the client of good will was refused: {error}") from None
        most_resident = max(most_resident, victim.size()[0])
        shown = good_will.text.count(b"\nkitty_process_info{")
        most_shown = max(most_shown, shown)
        time.sleep(max(0, started + SCRAPE_INTERVAL_S - time.monotonic()))
        return shown

    limit = 10**6  # the time is over first
    churning = [
        start_churn(lab, program, "connect", SERVE_PORT, limit, BUSY_S, KITTY_WATCH="1", RANK="1"),
        start_churn(lab, program, "spawn", SERVE_PORT, limit, BUSY_S),
    ]
    with Attackers(attackers(), BUSY_S) as attack:
        busy_until = time.monotonic() + BUSY_S
        while time.monotonic() < busy_until:
            ask()
        attack.finish()
    said = [process.stdout.readline().split() for process in churning]
    expect(all(len(words) > 1 for words in said), f"churn said nothing of what it did: {said}")
    lab.stop(*churning)
    connections, processes = (int(words[1]) for words in said)
    expect(connections > 1000 and processes > 100, f"too little churn: {connections} and {processes}")

    calm_until = time.monotonic() + CALM_LIMIT_S
    while ask() != 1 or time.monotonic() < ends:  # the watched process of Victim
        expect(time.monotonic() < max(ends, calm_until), "processes that ended are still shown")
    slowest = max(good_will.latencies[first:])
    expect(slowest < ANSWER_LIMIT_S, f"a scrape took {slowest:.2f} s")
    return (
        f"{connections} connections, {processes} processes, at most {most_shown} shown at once; scrapes "
        f"{len(good_will.latencies) - first}, slowest {slowest * 1e3:.0f} ms; RSS at most {most_resident >> 10} KiB; "
        f"{attack.did}"
    ), most_resident


def soak(lab, kitty, program, seconds):
    victim = Victim(kitty, lab)
    server = start_churn(lab, program, "serve", SERVE_PORT)
    expect(server.stdout.readline() == "ready\n", "expected churn serve to be ready")
    good_will = GoodWill()
    rounds = max(WARM_UP_ROUNDS + 2, seconds // ROUND_S)
    readings = []
    print(f"start: {Reading(victim)}", flush=True)
    for number in range(1, rounds + 1):
        what, most_resident = go_round(lab, victim, program, good_will)
        good_will.close()
        time.sleep(0.5)
        reading = Reading(victim)
        readings.append(reading)
        print(f"{number * ROUND_S} s: {reading}; {what}", flush=True)
        if number > WARM_UP_ROUNDS:
            before = readings[WARM_UP_ROUNDS - 1]
            expect(reading.resident <= before.resident + RSS_SLACK_BYTES, f"memory grew from {before}")
            expect(most_resident <= before.resident + GROWTH_LIMIT_BYTES, f"memory grew by 8 MiB from {before}")
            expect(reading.descriptors == before.descriptors, f"descriptors differ from {before}")
            expect(reading.threads == before.threads, f"threads differ from {before}")
    good_will.ask()
    good_will.close()
    failing = re.findall(rb"\n(kitty_collector_success\{.*\} 0)\n", good_will.text)
    expect(not failing, f"failing collectors: {failing}")
    print(f"{victim.terminate()} (limit {STOP_LIMIT_S} s)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--churn")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # of the namespaces
    given = parser.parse_args()
    kitty = os.path.abspath(given.kitty)
    program = os.path.abspath(given.churn or os.path.join(os.path.dirname(kitty), "churn"))
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    if not os.access(program, os.X_OK):
        print(f"SKIP: {program} is missing: build tests/native/churn.cpp")
        return 77
    isolate(given.inside, "--net", *OWN_PIDS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Lab() as lab:
        try:
            soak(lab, kitty, program, given.seconds)
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
    print("all held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
