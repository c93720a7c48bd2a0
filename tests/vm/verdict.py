#!/usr/bin/env python3
"""The verdict on faults by netem and tbf, on a kernel that has both: who, why, how soon, and nobody otherwise.

    verdict.py KITTY [--hook HOOK] [--cases quiet,delay,...] [--keep FOLDER]

Runs as root where the kernel has netem, which is what vm/run gives. Four ranks (ring_job.py), a network namespace each,
one agent that sees them all. `kitty diagnose` is asked without a pause from the first step to the last: a wrong name at
any time, or a name while nothing is wrong, fails the case. Prints what was said, after how long, and the evidence.
--keep leaves each case's scrapes for training/replay.py. Exit status 0 when every case holds.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # the checkout stays clean
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "training"))
from cluster import Cluster  # noqa: E402
from record import RecordingAgent  # noqa: E402
from replay import ranks_of  # noqa: E402
from lab import Failure, Fault, choose, run_cases  # noqa: E402

JOB, AGENT_PORT, RING_PORT = "vm", 9100, 7000
RANKS, FAULTY = 4, 2
# 68 segments each way, four times a second: of 270 segments a second and flow 5 % are 40 in the verdict's 3 s. And a
# throttle has more to hold back than the 64 kB from which on a queue is one.
MESSAGE_BYTES, INTERVAL_S = 98_304, 0.25
WINDOW_S = 5
STARTED_S = 60  # the programs' own start, on an emulated CPU, and a refresh
QUIET_S = 10
NAMED_S, CLEARED_S = 20, 30
REPORTED_S = 15
SETTLED_S = 3  # what is said of a window that began in the fault's first seconds may have another reason

# `fault`: the qdisc on the faulty rank's interface; `causes`: any of them is right.
Case = collections.namedtuple("Case", "name causes fault", defaults=((), None))
CASES = (
    Case("quiet"),
    Case("delay", ("latency",), ("netem", "delay", "50ms")),
    Case("loss", ("loss",), ("netem", "loss", "5%")),
    # A third of what the rank sends; the limit is more than it ever has under way, so that nothing is lost.
    Case("throttle", ("throttle",), ("tbf", "rate", "2mbit", "burst", "32kbit", "limit", "400000b")),
    Case("after"),
)


class VmAgent(RecordingAgent):
    def __init__(self, binary, folder, hook):
        super().__init__(binary, JOB, folder, AGENT_PORT)
        self.command.append(f"--rtt-hook={hook}")


class Said:
    """One answer of `kitty diagnose --json`, and when it began to watch and when it answered."""

    def __init__(self, began, ended, status, verdict):
        self.began, self.ended = began, ended
        self.status = status
        self.kind = verdict["verdict"]
        self.why = verdict["why"]
        links = [unit for link in verdict["links"] for unit in link]
        self.ranks = ranks_of(verdict["culprits"] + links)

    def is_healthy(self):
        return self.status == 0 and self.kind == "healthy"

    def is_right(self, case):
        return self.status == 1 and self.kind in case.causes and self.ranks == {FAULTY}

    def show(self, origin):
        ranks = f" {sorted(self.ranks)}" if self.ranks else ""
        return f"{self.kind}{ranks} ({self.why}) from {self.began - origin:.1f} to {self.ended - origin:.1f} s"


class Doctor:
    """Asks `kitty diagnose` again and again, in a thread: `with Doctor(...)` ends it."""

    def __init__(self, kitty):
        self.command = [kitty, "diagnose", f"--window={WINDOW_S}s", f"--job={JOB}", f"127.0.0.1:{AGENT_PORT}"]
        self.said = []  # appended to by the thread only
        self.broken = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def _run(self, *flags):
        return subprocess.run([*self.command, *flags], capture_output=True, text=True, timeout=60)

    def _ask(self):
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                done = self._run("--json")
                for verdict in json.loads(done.stdout)["jobs"]:
                    self.said.append(Said(began, time.monotonic(), done.returncode, verdict))
            except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                self.broken = f"{error!r}: {done.stderr}"
                return

    def report(self):
        """What people see: (exit status, lines)."""
        done = self._run()
        return done.returncode, done.stdout.splitlines()

    def wait(self, what, condition, since, limit_s):
        """The first answer that was given within so many seconds from `since` and meets the condition."""
        while True:
            if self.broken:
                raise Failure(f"kitty diagnose: {self.broken}")
            passed = time.monotonic() - since
            heard = [one for one in self.said if since < one.ended <= since + limit_s]
            if found := next(filter(condition, heard), None):
                return found
            if passed > limit_s + 1:
                seen = "\n      ".join(one.show(since) for one in heard)
                raise Failure(f"expected within {limit_s} s: {what}; said\n      {seen}")
            time.sleep(0.1)

    def wait_healthy(self, since, limit_s):
        """The first healthy answer about a network that was watched after `since` only."""
        return self.wait("healthy", lambda one: one.began >= since and one.is_healthy(), since, limit_s)


class Play:
    """One case on the running job: what was said, when, and what of it was wrong."""

    def __init__(self, case, namespace, doctor):
        self.case = case
        self.namespace = namespace  # the faulty rank's
        self.doctor = doctor
        self.begin = time.monotonic()
        self.since = self.until = self.cleared = None
        self.lines = []

    def run(self):
        if not self.case.fault:
            time.sleep(QUIET_S)
            self.report("healthy", 0, "VERDICT: HEALTHY")
            self.cleared = self.doctor.wait_healthy(self.begin, CLEARED_S).ended
        else:
            self.doctor.wait_healthy(self.begin, CLEARED_S)
            with Fault(self.namespace, *self.case.fault) as fault:
                self.since = fault.since
                self.hold()
            self.until = fault.until
            self.cleared = self.doctor.wait_healthy(self.until, CLEARED_S).ended
            self.lines.append(f"healthy after {self.cleared - self.until:.1f} s")
        if wrong := self.wrong():
            raise Failure("\n    ".join([*wrong, *self.lines]))
        return "\n    ".join(self.lines)

    def settle(self):
        """After a failure: lets the next case begin with a healthy network, if it becomes that."""
        if self.cleared is None:
            with contextlib.suppress(Failure):
                self.doctor.wait_healthy(time.monotonic(), CLEARED_S)

    def hold(self):
        what = f"{' or '.join(self.case.causes)} at rank {FAULTY}"
        said = self.doctor.wait(what, lambda one: one.is_right(self.case), self.since, NAMED_S)
        self.lines.append(f"{what} after {said.ended - self.since:.1f} s")
        self.report(what, 1, rf"VERDICT: ({'|'.join(self.case.causes).upper()}) at rank {FAULTY} \(")

    def report(self, what, status, headline):
        """What people read must say the same, soon: its verdict, reason and evidence become the case's."""
        deadline = time.monotonic() + REPORTED_S
        while True:
            seen, lines = self.doctor.report()
            if seen == status and re.search(headline, lines[0]):
                break
            self.lines += [f"(a report with exit status {seen}:)", *lines]
            if time.monotonic() > deadline:
                raise Failure("\n    ".join([f"expected a report with exit status {status}: {what}", *self.lines]))
        self.lines += lines

    def wrong(self):
        """Names outside the fault, other names within it, and wrong reasons while there was nothing else to see."""
        wrong = []
        for one in list(self.doctor.said):
            if one.ended <= self.begin:
                continue
            touched = self.since and one.ended > self.since and one.began < self.cleared
            if one.ranks and not (touched and one.ranks == {FAULTY}):
                wrong.append(f"a wrong name: {one.show(self.since or self.begin)}")
            elif one.ranks and self.since + SETTLED_S <= one.began and one.ended <= self.until and not one.is_right(self.case):
                wrong.append(f"a wrong reason: {one.show(self.since)}")
        return wrong

    def write_events(self, folder):
        """What training/replay.py wants to know."""
        unix = time.time() - time.monotonic()
        times = {"begin": self.begin, "agent_since": self.begin, "end": time.monotonic()}
        times |= {"since": self.since, "until": self.since and (self.until or time.monotonic())}
        events = {name: value and value + unix for name, value in times.items()}
        events |= {"case": self.case.name, "job": JOB, "causes": self.case.causes}
        events |= {"ranks": [FAULTY] if self.case.fault else []}
        with open(os.path.join(folder, "events.json"), "w") as file:
            json.dump(events, file, indent=1)


def start_ring(cluster):
    nodes = [cluster.add_node() for _ in range(RANKS)]
    program = (sys.executable, "-IS", os.path.join(HERE, "ring_job.py"))
    traffic = (str(RING_PORT), str(MESSAGE_BYTES), str(INTERVAL_S))
    for rank, node in enumerate(nodes):
        neighbours = (nodes[rank - 1].address, nodes[(rank + 1) % RANKS].address)
        cluster.start(
            node.namespace, *program, *traffic, node.address, *neighbours,
            KITTY_WATCH="1", JOB_NAME=JOB, RANK=str(rank), WORLD_SIZE=str(RANKS),
        )  # fmt: skip


def main():
    known = {case.name: case for case in CASES}
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--hook", default="auto")
    parser.add_argument("--cases", default=",".join(known))
    parser.add_argument("--keep", metavar="FOLDER")
    given = parser.parse_args()
    kitty = os.path.abspath(given.kitty)
    chosen = choose(parser, given.cases, known)
    with tempfile.TemporaryDirectory() as temporary, Cluster(JOB) as cluster:
        folder = given.keep or temporary
        os.makedirs(folder, exist_ok=True)
        with VmAgent(kitty, folder, given.hook) as agent, Doctor(kitty) as doctor:

            def start():
                agent.wait_first()
                start_ring(cluster)
                since = time.monotonic()
                said = doctor.wait_healthy(since, STARTED_S)
                if early := [one for one in doctor.said if one.ranks]:
                    raise Failure("a wrong name: " + ", ".join(one.show(since) for one in early))
                hook = re.search(r'msg="rtt hook taken[^"]*" hook=(\S+)', agent.output())
                return f"hook {hook and hook[1]}, healthy after {said.ended - since:.1f} s"

            def run(case):
                agent.folder = os.path.join(folder, case.name)
                os.makedirs(agent.folder)
                play = Play(case, cluster.nodes[FAULTY].namespace, doctor)
                try:
                    return play.run()
                finally:
                    play.settle()
                    play.write_events(agent.folder)
                    agent.check()

            steps = [("start", start), *((case.name, lambda case=case: run(case)) for case in chosen)]
            return run_cases(steps)


if __name__ == "__main__":
    sys.exit(main())
