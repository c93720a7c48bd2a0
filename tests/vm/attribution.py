#!/usr/bin/env python3
"""Whose samples are whose: processes that share a namespace, connections with the same addresses and ports, IPv6.

    attribution.py KITTY [--hook HOOK] [--cases one_namespace,same_addresses,ipv6]

Runs as root where the kernel has netem (same_addresses) and tbf (ipv6), which is what vm/run gives. Exit status 0 when every case holds.
"""

import argparse
import os
import sys
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import Agent, Failure, Fault, Lab, choose, median, run_cases, show  # noqa: E402

INTERVAL_S = 0.1
DISCOVERED_S = 60  # a refresh each 5 s, and the traffic programs' own start, on an emulated CPU
SANE_US = 40_000  # over any round trip on veth, under any with netem's 50 ms

SOURCES = ("net_tcp_rtt_us", "net_tcp_retransmits_total", "net_tcp_out_segs_total", "net_tcp_tx_queue_bytes")


def watched(rank):
    return {"KITTY_WATCH": "1", "RANK": str(rank), "JOB_NAME": "vm"}


def labels_of(process, rank):
    return {"pid": str(process.pid), "rank": str(rank), "job": "vm"}


def wait_value(agent, name, labels, what, condition, limit_s, since=None):
    """The first value that meets the condition."""
    since = time.monotonic() if since is None else since

    def met(scrape):
        value = scrape.value(name, **labels)
        return value is not None and condition(value)

    try:
        return agent.wait(f"{name}{labels} {what}", met, limit_s, since).value(name, **labels)
    except Failure as failure:
        seen = show(agent.series(name, since - 3, **labels), since)
        raise Failure(f"{failure}; seen {seen}") from None


def wait_sane(agent, process, rank):
    return wait_value(
        agent, "net_tcp_rtt_us", labels_of(process, rank), f"in 0..{SANE_US}", lambda v: 0 < v < SANE_US, DISCOVERED_S
    )


def one_namespace(lab, agent):
    """Two watched processes and one that is not, side by side: each watched one has its own series, the other none."""
    left, right = lab.namespace("one-l"), lab.namespace("one-r")
    lab.join(left, ["10.79.0.1/24"], right, ["10.79.0.2/24"])
    lab.start_echo(right, "10.79.0.2", 7000)
    senders = [lab.start_send(left, "10.79.0.2", 7000, INTERVAL_S, **watched(rank)) for rank in (0, 1)]
    stranger = lab.start_send(left, "10.79.0.2", 7000, INTERVAL_S)
    seen = [wait_sane(agent, sender, rank) for rank, sender in enumerate(senders)]
    time.sleep(12)  # two refreshes more: a stranger would be there by now
    agent.check()
    scrape = agent.scrapes[-1]
    expected = sorted(str(sender.pid) for sender in senders)
    for name in SOURCES:
        pids = sorted(labels["pid"] for labels, _ in scrape.find(name))
        if pids != expected:
            raise Failure(f"expected {name} of pids {expected} (and not of {stranger.pid}), seen {pids}")
    segments = [scrape.value("net_tcp_out_segs_total", **labels_of(s, rank)) for rank, s in enumerate(senders)]
    if segments[0] != segments[1] or not segments[0]:
        raise Failure(f"expected one count of segments out for one namespace, seen {segments}")
    return f"2 of 3 processes shown, rtt {seen[0] / 1e3:.1f} and {seen[1] / 1e3:.1f} ms"


def same_addresses(lab, agent):
    """Two namespaces whose connections cannot be told apart by address and port; one of them is delayed."""
    senders, namespaces = [], []
    for rank in (0, 1):
        left, right = lab.namespace(f"same-l{rank}"), lab.namespace(f"same-r{rank}")
        lab.join(left, ["10.79.1.1/24"], right, ["10.79.1.2/24"])
        lab.start_echo(right, "10.79.1.2", 7000)
        bind = ("10.79.1.1", 40000)
        senders.append(lab.start_send(left, "10.79.1.2", 7000, INTERVAL_S, bind, **watched(rank)))
        namespaces.append(left)
    quiet = [wait_sane(agent, sender, rank) for rank, sender in enumerate(senders)]
    figures = []
    for rank in (0, 1):
        with Fault(namespaces[rank], "netem", "delay", "50ms") as fault:
            wait_value(
                agent, "net_tcp_rtt_us", labels_of(senders[rank], rank), "over 45 ms", lambda v: v > 45_000, 10,
                fault.since,
            )  # fmt: skip
            time.sleep(5)
            other = agent.series("net_tcp_rtt_us", fault.since, **labels_of(senders[1 - rank], 1 - rank))
            delayed = agent.series("net_tcp_rtt_us", fault.since + 2, **labels_of(senders[rank], rank))
        if not median(delayed) > 45_000:
            raise Failure(f"expected rank {rank} over 45 ms throughout, seen {show(delayed, fault.since)}")
        if not median(other) < SANE_US / 2:
            raise Failure(f"expected rank {1 - rank} undisturbed, seen {show(other, fault.since)}")
        figures.append(f"rank {rank} {median(delayed) / 1e3:.1f} beside {median(other) / 1e3:.1f} ms")
        wait_sane(agent, senders[rank], rank)
    return f"quiet {quiet[0] / 1e3:.1f} and {quiet[1] / 1e3:.1f} ms, delayed in turn: {', '.join(figures)}"


def ipv6(lab, agent):
    """An IPv6 connection and an IPv4 one through an AF_INET6 socket: both have samples and a queue."""
    left, right = lab.namespace("six-l"), lab.namespace("six-r")
    lab.join(left, ["10.79.2.1/24", "fd79::1/64"], right, ["10.79.2.2/24", "fd79::2/64"])
    lab.start_echo(right, "::", 7000)
    targets = ["fd79::2", "::ffff:10.79.2.2"]
    senders = [lab.start_send(left, target, 7000, INTERVAL_S, **watched(rank)) for rank, target in enumerate(targets)]
    rtt = [wait_sane(agent, sender, rank) for rank, sender in enumerate(senders)]
    with Fault(left, "tbf", "rate", "128kbit", "burst", "4500b", "limit", "200000b"):
        queue = [
            wait_value(agent, "net_tcp_tx_queue_bytes", labels_of(sender, rank), "over 0", lambda v: v > 0, 20)
            for rank, sender in enumerate(senders)
        ]
        # Not a passing glance at a message on its way: at this rate each always has one.
        time.sleep(6)
        since = time.monotonic()
        time.sleep(10)
        for rank, sender in enumerate(senders):
            series = agent.series("net_tcp_tx_queue_bytes", since, **labels_of(sender, rank))
            if not median(series) > 0:
                raise Failure(f"expected a queue towards {targets[rank]}, seen {show(series, since)}")
    return ", ".join(f"{t}: rtt {r / 1e3:.1f} ms, queue {q / 1e3:.0f} kB" for t, r, q in zip(targets, rtt, queue))


def main():
    cases = {case.__name__: case for case in (one_namespace, same_addresses, ipv6)}
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--hook", default="auto")
    parser.add_argument("--cases", default=",".join(cases))
    given = parser.parse_args()
    chosen = choose(parser, given.cases, cases)
    with Agent(given.kitty, f"--rtt-hook={given.hook}") as agent:

        def in_a_lab(case):
            with Lab() as lab:
                return case(lab, agent)

        steps = [(case.__name__, lambda case=case: in_a_lab(case)) for case in chosen]
        status = run_cases([*steps, ("stop", lambda: f"status 0 in {agent.stop(10):.1f} s after SIGTERM")])
        if status:
            print(f"the agent's log:\n{agent.output()}")
        return status


if __name__ == "__main__":
    sys.exit(main())
