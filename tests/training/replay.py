#!/usr/bin/env python3
"""Judges recordings as a watcher would have while they were made: windows of 3 s that slide by a scrape, 1 s.

    replay.py KITTY FOLDER... [--verbose]

KITTY is run as `kitty diagnose` on each window's files. Somebody is named once two windows in a row agree, and cleared
once two in a row are healthy. Prints whom, what, the time to name and to clear, and every window that named somebody
else; --verbose every window. Exit status 0 where all is as record.py's events.json of each folder says.
"""

import argparse
import collections
import json
import os
import subprocess
import sys

WINDOW_SCRAPES = 4  # 3 s
IN_A_ROW = 2
NAME_WITHIN_S = 5
CLEAR_WITHIN_S = 10
SETTLED_S = 10  # whatever is said this long after a fault is about a healthy network

# What a window says: the time of its last scrape; the verdict's kind, "cause" of a link; the ranks it names.
Said = collections.namedtuple("Said", "time_s kind ranks")


def ranks_of(texts):
    """{2, 4, 5} of ["2", "4-5"]."""
    ranks = set()
    for text in texts:
        for part in text.split(","):
            first, _, last = part.partition("-")
            ranks.update(range(int(first), int(last or first) + 1))
    return frozenset(ranks)


def judge(kitty, job, targets, time_s, *flags):
    """What `kitty diagnose` says of a job, from files or live."""
    command = [kitty, "diagnose", "--json", f"--job={job}", *flags, *targets]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"kitty diagnose: exit status {done.returncode}: {done.stderr.strip()}")
    jobs = json.loads(done.stdout)["jobs"]
    if not jobs:
        return Said(time_s, "no data", frozenset())
    [verdict] = jobs
    links = [unit for link in verdict["links"] for unit in link]
    return Said(time_s, verdict["verdict"], ranks_of(verdict["culprits"] + links))


def windows(kitty, folder, job):
    """What each window of a recording says, in their order."""
    names = sorted((name for name in os.listdir(folder) if name.endswith(".prom")), key=lambda name: int(name[:-5]))
    paths = []
    for name in names:
        path = os.path.join(folder, name)
        time_s = int(name[:-5]) / 1000
        os.utime(path, (time_s, time_s))  # which copying may have lost, and a file's time is all that diagnose has
        paths.append((time_s, path))
    for first in range(len(paths) - WINDOW_SCRAPES + 1):
        part = paths[first : first + WINDOW_SCRAPES]
        yield judge(kitty, job, [path for _, path in part], part[-1][0])


def held(said, ranks, kinds=None):
    """The time at which two windows in a row first named these ranks, the latter for one of these kinds, or None."""
    for before, now in zip(said, said[1:]):
        if before.ranks == now.ranks == ranks and (not kinds or now.kind in kinds):
            return now.time_s
    return None


class Outcome:
    """A recording's verdicts held against what should have been said."""

    def __init__(self, events, said):
        self.case = events["case"]
        self.said = said
        self.wanted = frozenset(events["ranks"])
        self.causes = events["causes"]
        self.since, self.until, self.end = events["since"], events["until"], events["end"]
        self.named_s = self.cleared_s = None
        # Two windows in a row that name the same wrong ranks, or give the right ones a wrong cause.
        pairs = list(zip(said, said[1:]))
        agree = [now for before, now in pairs if (before.ranks, before.kind) == (now.ranks, now.kind)]
        named_twice = [one for one in agree if one.ranks]
        self.wrong_names = [one for one in named_twice if one.ranks != self.wanted]
        self.wrong_causes = [
            one
            for one in named_twice
            if one.ranks == self.wanted and one.kind not in self.causes and self.all_fault(one)
        ]
        self.single = [one for one in said if one.ranks and one.ranks != self.wanted]
        if not self.wanted:
            return
        during = [one for one in said if self.since < one.time_s <= self.until + 1]
        named = held(during, self.wanted, self.causes)
        # An agent that was started during the fault cannot have seen it sooner.
        self.named_s = named and named - max(self.since, events["agent_since"])
        after = [one for one in said if one.time_s > self.until]
        cleared = held(after, frozenset())
        self.cleared_s = cleared and cleared - self.until

    def all_fault(self, one):
        """Whether a window held nothing but the fault: one that holds its beginning or end may see another cause."""
        return self.since + WINDOW_SCRAPES - 1 <= one.time_s <= self.until

    def kinds(self):
        """What was said when nobody but the wanted was named."""
        return collections.Counter(one.kind for one in self.said if one.ranks == self.wanted)

    def problems(self):
        problems = [f"named {show(one)} at {self.at(one)}" for one in self.wrong_names + self.wrong_causes]
        if self.causes and not self.wanted:
            problems += [f"said {show(one)} at {self.at(one)}" for one in self.said if one.kind not in self.causes]
        if self.wanted:
            what = f"{' or '.join(self.causes)} {sorted(self.wanted)}"
            if self.named_s is None or self.named_s > NAME_WITHIN_S:
                problems.append(f"expected {what} within {NAME_WITHIN_S} s, seen {seconds(self.named_s)}")
            if self.end - self.until >= CLEAR_WITHIN_S and (self.cleared_s is None or self.cleared_s > CLEAR_WITHIN_S):
                problems.append(f"expected it cleared within {CLEAR_WITHIN_S} s, seen {seconds(self.cleared_s)}")
        return problems

    def at(self, one):
        return f"{one.time_s - (self.since or self.said[0].time_s):.1f} s"

    def summary(self):
        wanted = f"{'|'.join(self.causes) or 'nobody'} {sorted(self.wanted) if self.wanted else ''}".strip()
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.kinds().items())
        times = f" named {seconds(self.named_s)}, cleared {seconds(self.cleared_s)};" if self.wanted else ""
        return (
            f"{self.case}: wanted {wanted}; right as: {kinds or 'never'};{times} held: {len(self.wrong_names)} wrong "
            f"names, {len(self.wrong_causes)} wrong causes; {len(self.single)} of {len(self.said)} windows name wrongly"
        )


def show(one):
    return f"{one.kind} {sorted(one.ranks)}" if one.ranks else one.kind


def seconds(value):
    return "never" if value is None else f"{value:.1f} s"


def replay(kitty, folder):
    with open(os.path.join(folder, "events.json")) as file:
        events = json.load(file)
    return Outcome(events, list(windows(kitty, folder, events["job"])))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    wrong = 0
    for folder in given.folders:
        outcome = replay(os.path.abspath(given.kitty), folder)
        problems = outcome.problems()
        wrong += bool(problems)
        print(("FAIL " if problems else "PASS ") + outcome.summary(), flush=True)
        for problem in problems:
            print(f"    {problem}")
        if given.verbose:
            print("    " + " ".join(f"{outcome.at(one)}:{show(one)}" for one in outcome.said))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
