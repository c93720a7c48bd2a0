#!/usr/bin/env python3
"""The verdict on real training jobs with real faults: whom it names, why, how soon, and that it is silent otherwise.

    verdict_test.py KITTY [--cases quiet,egress_20,...] [--tier quick|slow|long] [--port 9340] [--keep FOLDER]

Each case runs a job in network namespaces with one agent (cases.py), records its scrapes, and asks `kitty diagnose`
twice: live, started in the middle of the fault, and afterwards on every window of 3 s of the recording, as a watcher
would have. Needs root. Without --cases those of a tier, by default quick; long is all of them. --keep leaves the
recordings. Exit status 0 when every case holds, 77 when none could run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
from record import record  # noqa: E402
import replay  # noqa: E402
from lab import Failure, Missing  # noqa: E402

LIVE_WINDOW_S = 5


class Live:
    """What `kitty diagnose` says that is started in the middle of the fault."""

    def __init__(self, case, kitty, port):
        self.case = case
        self.kitty = kitty
        self.port = port
        self.said = None

    def ask(self, job):
        flag = f"--window={LIVE_WINDOW_S}s"
        self.said = replay.judge(self.kitty, job, [f"127.0.0.1:{self.port}"], time.time(), flag)

    def problems(self):
        wanted = frozenset(self.case.ranks)
        right = self.said.ranks == wanted and (not self.case.causes or self.said.kind in self.case.causes)
        return [] if right else [f"named {replay.show(self.said)} live"]


def run_case(case, kitty, folder, port):
    """Returns (problems, summary)."""
    live = Live(case, kitty, port)
    events = record(case, kitty, folder, port, live.ask)
    outcome = replay.replay(kitty, folder)
    steps = "/".join(str(step) for step in events["step_ms"])
    summary = f"{outcome.summary()}; live: {replay.show(live.said)}; steps {steps} ms"
    return outcome.problems() + live.problems(), summary


def main():
    known = {case.name: case for case in cases.CASES}
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--cases")
    parser.add_argument("--tier", choices=("quick", "slow", "long"), default="quick")
    parser.add_argument("--port", type=int, default=9340)
    parser.add_argument("--keep")
    given = parser.parse_args()
    of_tier = [case.name for case in cases.CASES if given.tier in (case.tier, "long")]
    chosen = given.cases.split(",") if given.cases else of_tier
    if unknown := set(chosen) - set(known):
        parser.error(f"no case {' '.join(sorted(unknown))}")
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    kitty = os.path.abspath(given.kitty)
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in chosen:
            folder = os.path.join(given.keep or temporary, name)
            try:
                problems, line = run_case(known[name], kitty, folder, given.port)
            except Missing as missing:
                skipped += 1
                print(f"SKIP: {name}: {missing} is missing", flush=True)
                continue
            except (Failure, RuntimeError, json.JSONDecodeError, subprocess.TimeoutExpired) as failure:
                problems, line = [str(failure)], name
            failed += bool(problems)
            passed += not problems
            print("\n    ".join([f"{'FAIL' if problems else 'PASS'} {line}", *problems]), flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0 if passed else 77


if __name__ == "__main__":
    sys.exit(main())
