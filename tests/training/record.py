#!/usr/bin/env python3
"""Runs cases and records what the agent serves, so that verdicts can be replayed from files.

    record.py KITTY FOLDER [--cases quiet,egress_20,...] [--port 9340]

Writes FOLDER/CASE/MILLISECONDS.prom for each second's scrape, named by its Unix time and with that as its mtime,
without the series of other jobs; FOLDER/CASE/events.json: when the fault was and how busy the machine; and each rank's
steps. Needs root.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import threading
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import cluster  # noqa: E402
from lab import Agent, Failure, Missing, fetch  # noqa: E402

JOB_LABEL = re.compile(r'[{,]job="((?:[^"\\]|\\.)*)"')
FIRST_SCRAPE_S = 20


class RecordingAgent(Agent):
    """An agent whose scrapes go to files, one each second."""

    INTERVAL_S = 1.0

    def __init__(self, binary, job, folder, port):
        super().__init__(binary, port=port)
        self.job = job
        self.folder = folder
        self.count = 0

    def _record(self):
        next_s = time.monotonic()
        while not self.stopping.is_set():
            try:
                taken = time.time()
                self._write(fetch("127.0.0.1", self.port, "/metrics"), taken)
            except OSError:
                self.refused += 1  # not listening yet
            except Failure as error:
                self.broken = self.broken or error
            next_s = max(next_s + self.INTERVAL_S, time.monotonic())
            self.stopping.wait(max(0, next_s - time.monotonic()))

    def _write(self, text, taken):
        def ours(line):
            job = None if line.startswith("#") else JOB_LABEL.search(line)
            return not job or job[1] == self.job

        lines = [line for line in text.splitlines(keepends=True) if ours(line)]
        # A text that describes fewer processes than it says are watched passes for one that was cut off.
        described = sum(line.startswith("kitty_process_info{") for line in lines)
        lines = [re.sub(r"^(kitty_watched_processes) .*", rf"\1 {described}", line) for line in lines]
        path = os.path.join(self.folder, f"{taken * 1000:.0f}.prom")
        with open(path, "w") as file:
            file.writelines(lines)
        os.utime(path, (taken, taken))
        self.count += 1

    def wait_first(self):
        deadline = time.monotonic() + FIRST_SCRAPE_S
        while not self.count:
            self.check()
            if time.monotonic() > deadline:
                raise Failure("the agent serves nothing")
            time.sleep(0.05)


def record(case, kitty, folder, port, during=lambda job: None):
    """Records a case into a folder; returns its events. `during(job)` is called in the middle, of the fault if any."""
    try:
        os.makedirs(folder)
    except FileExistsError:
        raise Failure(f"{folder} exists") from None
    for need in case.needs:
        getattr(cluster, f"require_{need}")()
    job = f"{case.name}-{os.getpid()}"
    loads = []

    def wait(seconds):
        time.sleep(seconds)
        loads.append(os.getloadavg()[0])

    with cluster.Cluster(job) as nodes:
        cases.prepare(case, nodes)
        agent = RecordingAgent(kitty, job, folder, port)
        with contextlib.ExitStack() as undo:

            def start_agent():
                undo.enter_context(agent)
                agent.wait_first()
                return time.time()

            case.start(nodes, folder)
            agent_since = None if case.late_agent else start_agent()
            begin = time.time()
            wait(case.quiet_s)
            since = until = None
            if not case.fault:
                during(job)
            if case.fault:
                with cases.fault_of(case, nodes, folder):
                    since = time.time()
                    wait(case.fault_s / 2)
                    agent_since = agent_since or start_agent()
                    during(job)
                    wait(max(0, since + case.fault_s - time.time()))
                until = time.time()
                wait(case.after_s)
            end = time.time()
            agent.check()
            hook = re.search(r'msg="rtt hook taken[^"]*" hook=(\S+)', agent.output())
    events = {
        "case": case.name,
        "job": job,
        "ranks": case.ranks,
        "causes": case.causes,
        "agent_since": agent_since,
        "begin": begin,
        "since": since,
        "until": until,
        "end": end,
        "load": loads,
        "hook": hook[1] if hook else "none",
        "scrapes": agent.count,
        "step_ms": step_times(folder, begin, since, until, end),
    }
    with open(os.path.join(folder, "events.json"), "w") as file:
        json.dump(events, file, indent=1)
    return events


def step_times(folder, begin, since, until, end):
    """Median milliseconds of rank 0's steps that ended before, during and after the fault."""
    spans = [(begin, since), (since, until), (until, end)] if since else [(begin, end)]
    steps = cluster.read_steps(folder, 0)
    medians = []
    for first, last in spans:
        seconds = [took for ended, took in steps if first <= ended < last]
        medians.append(round(statistics.median(seconds) * 1000) if seconds else None)
    return medians


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("folder")
    parser.add_argument("--cases", default=",".join(case.name for case in cases.CASES))
    parser.add_argument("--port", type=int, default=9340)
    given = parser.parse_args()
    known = {case.name: case for case in cases.CASES}
    chosen = given.cases.split(",")
    if unknown := set(chosen) - set(known):
        parser.error(f"no case {' '.join(sorted(unknown))}")
    failed = 0
    for name in chosen:
        try:
            events = record(known[name], os.path.abspath(given.kitty), os.path.join(given.folder, name), given.port)
            loads = "/".join(f"{load:.1f}" for load in events["load"])
            print(f"{name}: {events['scrapes']} scrapes, steps {events['step_ms']} ms, load {loads}", flush=True)
        except Missing as missing:
            print(f"SKIP: {name}: {missing} is missing", flush=True)
        except Failure as failure:
            print(f"FAIL {name}: {failure}", flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
