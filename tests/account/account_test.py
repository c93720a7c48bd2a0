#!/usr/bin/env python3
"""Where each rank's time goes, by kitty and by a second witness: packet captures, TCP_INFO and receive queues.

    account_test.py KITTY [--cases NAME,...] [--tier quick|slow] [--witness-only] [--seconds S] [--port P]
                    [--keep FOLDER]

Each case runs a job in network namespaces (jobs.py), takes both accounts of the same window, and prints them beside
each other. kitty's window begins and ends with a tick; when that was follows from its scrapes. A case fails where a
share of a rank differs by more than 5 points, or 10 for the one that differs most, and where the witness's own account
misses what the job was built to show. --keep leaves the captures, for witness.py. Needs root and tcpdump. Exit
status 0 when every case holds, 77 when none could run.
"""

import argparse
import collections
import contextlib
import os
import re
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import account_check  # noqa: E402
import jobs  # noqa: E402
from account import in_order, name_of, show  # noqa: E402
from capture import Capture, Recording, require_tcpdump  # noqa: E402
from lab import Agent, choose, expect, run_cases  # noqa: E402

POINTS, WORST_POINTS = 5, 10
SETTLE_S = 4
BEFORE_S, AFTER_S = 2, 1  # captured beside the window: a silence that began before it, a tick that ends it
APPEARS_S = 30
SHOWN_POINTS = 0.5
SETTLED_S = 0.95  # kitty's sums end so long before the tick that shows them: kSettleUs of collector/time_book.h, or two ticks


class AccountAgent(Agent):
    INTERVAL_S = 0.07  # no part of kitty's tick, so that scrapes see ticks at all phases
    ACCOUNTED, OPEN = "kitty_accounted_seconds_total", "kitty_unsettled_seconds"
    BY_PEER = {
        "kitty_peer_waiting_seconds_total": "waiting",
        "kitty_peer_receiver_limited_seconds_total": "receiver",
        "kitty_peer_path_limited_seconds_total": "path",
        "kitty_peer_receiving_seconds_total": "receiving",
    }
    BY_RANK = {"kitty_owing_seconds_total": "owing", "kitty_moving_seconds_total": "moving",
               "kitty_unknown_seconds_total": "unknown", OPEN: "open"}
    WANTED = re.compile("|".join((ACCOUNTED, *BY_PEER, *BY_RANK)))


def kitty_accounts(agent, job, recording, begin_s, end_s):
    """[(begin, end, {(share, peer): share of the window})] of each rank; times as the captures have them.

    A tick's text is seen by the first scrape after it, and by none before; accounted seconds grow as time does. So all
    scrapes together tell when a rank's account began, to a fraction of the time between two scrapes.
    """
    offset_s = time.time() - time.monotonic()
    found = []
    for rank in range(len(recording.addresses)):
        ticks, earliest_s, latest_s, before_s, last = [], -float("inf"), float("inf"), None, None
        for scrape in list(agent.scrapes):
            accounted = scrape.value(AccountAgent.ACCOUNTED, rank=str(rank), job=job.job)
            at_s = scrape.time_s + offset_s
            if accounted is not None and accounted != last:
                latest_s = min(latest_s, at_s - accounted)
                if last is not None:
                    earliest_s = max(earliest_s, before_s - accounted)
                ticks.append((accounted, scrape))
                last = accounted
            before_s = at_s
        expect(len(ticks) > 2, f"rank {rank}: {AccountAgent.ACCOUNTED} is missing")
        began_s = (earliest_s + latest_s) / 2 if earliest_s > -float("inf") else latest_s
        within = [tick for tick in ticks if begin_s <= began_s + tick[0] <= end_s]
        expect(len(within) >= 2, f"rank {rank}: {len(within)} ticks of {AccountAgent.ACCOUNTED} in the window")
        (since, one), (until, other) = within[0], within[-1]
        shares = collections.Counter()
        for name, share in (*AccountAgent.BY_PEER.items(), *AccountAgent.BY_RANK.items()):
            for sign, scrape in ((-1, one), (1, other)):
                for labels, value in scrape.find(name, rank=str(rank), job=job.job):
                    peer = labels.get("peer") if name in AccountAgent.BY_PEER else None
                    shares[share, peer] += sign * value / (until - since)
        found.append((began_s + since, began_s + until, recording.by_rank(shares)))
    return found


def beside(rank, by_witness, by_kitty):
    """The table's lines of a rank, and {name: difference in points}."""
    lines, differences = [], {}
    for name in in_order(by_witness.keys() | by_kitty.keys()):
        one, other = 100 * by_witness.get(name, 0), 100 * by_kitty.get(name, 0)
        differences[rank, name_of(*name)] = other - one
        if max(abs(one), abs(other)) >= SHOWN_POINTS:
            what = name_of(*name)
            lines.append(f"{'rank ' + str(rank):<8} {what:<22} {one:8.1f} {other:8.1f} {other - one:+8.1f}")
    sums = [100 * sum(of.values()) for of in (by_witness, by_kitty)]
    lines.append(f"{'':<8} {'sum':<22} {sums[0]:8.1f} {sums[1]:8.1f}")
    return lines, differences


def far_apart(differences):
    """What differs by too much: the share that differs most by WORST_POINTS, any other by POINTS."""
    worst = max(differences, key=lambda name: abs(differences[name]))
    return [
        f"rank {rank}: {share} by {points:+.1f}"
        for (rank, share), points in differences.items()
        if abs(points) > (WORST_POINTS if (rank, share) == worst else POINTS)
    ]


def unexpected(case, accounts):
    """What a case was built to show and does not."""
    missed = []
    for (rank, share, peer), least in case.expected.items():
        seen = 100 * accounts[rank].shares[share, peer]
        if seen < least:
            missed.append(f"rank {rank}: expected {name_of(share, peer)} of at least {least}, seen {seen:.0f}")
    return missed


def measure(case, kitty, folder, seconds, port):
    """Runs a case; the lines of its figures. A Failure where the accounts disagree."""
    for require in (require_tcpdump, *case.needs):
        require()
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(jobs.Job("account", case.nodes, case.ipv6))
        agent = stack.enter_context(AccountAgent(kitty, port=port)) if kitty else None
        case.start(job, folder)
        if agent:
            agent.wait(
                f"{AccountAgent.ACCOUNTED} of each rank",
                lambda scrape: len(scrape.find(AccountAgent.ACCOUNTED, job=job.job)) >= case.nodes,
                APPEARS_S,
            )
        stack.enter_context(case.fault(job, folder))
        time.sleep(SETTLE_S)
        namespaces = [node.namespace for node in job.nodes[: case.nodes]]
        with Capture(job, namespaces, folder):
            time.sleep(BEFORE_S)
            begin_s = time.time()
            time.sleep(seconds)
            end_s = time.time()
            time.sleep(AFTER_S if agent else 0)
        recording = Recording(folder)
        ranks = range(case.nodes)
        accounts = [recording.account(rank, begin_s, end_s) for rank in ranks]
        lines, problems = show(accounts), unexpected(case, accounts)
        if agent:
            agent.check()
            lines.append(f"{'':<8} {'share':<22} {'witness':>8} {'kitty':>8} {'points':>8}")
            differences = {}
            by_kitty = kitty_accounts(agent, job, recording, begin_s, end_s + AFTER_S)
            for rank, (since_s, until_s, shares) in enumerate(by_kitty):
                posted = recording.account(rank, since_s - SETTLED_S, until_s - SETTLED_S, posted=True)
                more, apart = beside(rank, posted.shares, shares)
                lines += more
                differences.update(apart)
            problems += far_apart(differences)
        figures = "\n    ".join(["", *lines])
        expect(not problems, f"{'; '.join(problems)}{figures}")
        return figures


def run_case(case, kitty, seconds, port, keep):
    with contextlib.ExitStack() as stack:
        if keep:
            folder = os.path.join(keep, case.name)
            os.makedirs(folder, exist_ok=True)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kitty-account-"))
        return measure(case, kitty, folder, seconds, port)


def self_test():
    account_check.check()
    return "the witness's account of packets written by hand"


def main():
    known = {case.name: case for case in jobs.CASES}
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--cases")
    parser.add_argument("--tier", choices=("quick", "slow"), default="slow")
    parser.add_argument("--witness-only", action="store_true", help="without kitty")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--port", type=int, default=9390)
    parser.add_argument("--keep")
    given = parser.parse_args()
    of_tier = ",".join(case.name for case in jobs.CASES if given.tier in (case.tier, "slow"))
    chosen = choose(parser, given.cases or of_tier, known)
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    kitty = None if given.witness_only else os.path.abspath(given.kitty)
    return run_cases(
        [
            ("self-test", self_test),
            *(
                (case.name, lambda case=case: run_case(case, kitty, given.seconds, given.port, given.keep))
                for case in chosen
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
