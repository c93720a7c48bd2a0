#!/usr/bin/env python3
"""What recordings show, from the metrics alone: the figures that the verdict's thresholds are taken from.

    figures.py FOLDER...        each as record.py writes it

Prints, for each rank before, during and after the fault: data segments sent a second, retransmitted percent, bytes
queued (mean of the scrapes), percent of the time its busiest peer was busy, the sum of that over its peers, and the
least over its active peers of the mean RTT in ms. Only peers that are ranks of the job in another network namespace
count.
"""

import collections
import json
import os
import re
import sys

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import Failure, Scrape, parse_exposition  # noqa: E402

ACTIVE_SEGMENTS_PER_S = 10
READ = re.compile("kitty_peer_|kitty_process_")

# What a rank did towards one address: rates and shares over a window.
Flow = collections.namedtuple("Flow", "data_per_s segments retransmits rtt_s samples busy queue least_s")


def load(folder):
    """(events, [scrape]), the scrapes by their time."""
    with open(os.path.join(folder, "events.json")) as file:
        events = json.load(file)
    names = sorted((name for name in os.listdir(folder) if name.endswith(".prom")), key=lambda name: int(name[:-5]))
    scrapes = []
    for name in names:
        with open(os.path.join(folder, name)) as file:
            scrapes.append(Scrape(int(name[:-5]) / 1000, parse_exposition(file.read(), READ)))
    return events, scrapes


def identities(scrape):
    """({pid: rank}, {address: namespace}, {pid: namespace}) of the ranks in a scrape."""
    ranks, namespaces, addresses = {}, {}, {}
    for labels, _ in scrape.find("kitty_process_info", role="rank"):
        if labels["rank"]:
            ranks[labels["pid"]], namespaces[labels["pid"]] = labels["rank"], labels["netns"]
    for labels, _ in scrape.find("kitty_process_address_info"):
        if labels["pid"] in ranks:
            addresses[labels["address"]] = namespaces[labels["pid"]]
    return ranks, addresses, namespaces


def window(scrapes):
    """{rank: {address: Flow}} between the first and the last of these scrapes."""
    first, last = scrapes[0], scrapes[-1]
    seconds = last.time_s - first.time_s
    ranks, addresses, namespaces = identities(last)
    before = {(name, labels["pid"], labels.get("peer")): value for name, labels, value in first.samples}

    def grown(name, pid, peer):
        value = last.value(f"kitty_peer_{name}", pid=pid, peer=peer) or 0
        return max(0, value - before.get((f"kitty_peer_{name}", pid, peer), 0))

    flows = {}
    for pid, rank in ranks.items():
        flows[rank] = {}
        for labels, _ in last.find("kitty_peer_segments_sent_total", pid=pid):
            peer = labels["peer"]
            if addresses.get(peer, namespaces[pid]) == namespaces[pid]:
                continue
            samples = grown("rtt_seconds_count", pid, peer)
            queues = [scrape.value("kitty_peer_tx_queue_bytes", pid=pid, peer=peer) or 0 for scrape in scrapes]
            least = [scrape.value("kitty_peer_rtt_min_seconds", pid=pid, peer=peer) for scrape in scrapes[1:]]
            flows[rank][peer] = Flow(
                grown("data_segments_sent_total", pid, peer) / seconds,
                grown("segments_sent_total", pid, peer),
                grown("retransmits_total", pid, peer),
                grown("rtt_seconds_sum", pid, peer) / samples if samples else None,
                samples,
                grown("busy_seconds_total", pid, peer) / seconds,
                sum(queues) / len(queues),
                min((value for value in least if value is not None), default=None),
            )
    return flows


def active(flow):
    return flow.data_per_s >= ACTIVE_SEGMENTS_PER_S


def best_rtt(flows):
    return min((flow.rtt_s for flow in flows.values() if active(flow) and flow.rtt_s is not None), default=None)


def line(flows):
    """One span's figures of every rank."""
    ranks = sorted(flows, key=int)

    def of(figure):
        return "/".join(figure(list(flows[rank].values()), flows[rank]) for rank in ranks)

    def retransmitted(all_flows, _):
        segments = sum(flow.segments for flow in all_flows)
        return f"{100 * sum(flow.retransmits for flow in all_flows) / segments:.2f}" if segments else "-"

    def rtt(_, by_peer):
        best = best_rtt(by_peer)
        return "-" if best is None else f"{1000 * best:.3g}"

    return " | ".join(
        (
            of(lambda flows, _: f"{sum(flow.data_per_s for flow in flows):.0f}"),
            of(retransmitted),
            of(lambda flows, _: f"{sum(flow.queue for flow in flows) / 1000:.0f}"),
            of(lambda flows, _: f"{100 * max((flow.busy for flow in flows), default=0):.0f}"),
            of(lambda flows, _: f"{100 * sum(flow.busy for flow in flows):.0f}"),
            of(rtt),
        )
    )


def print_figures(folder):
    events, scrapes = load(folder)
    begin, since, until, end = (events[name] for name in ("begin", "since", "until", "end"))
    spans = {"before": (begin, since), "during": (since, until), "after": (until, end)} if since else {"": (begin, end)}
    for (name, (first, last)), step_ms in zip(spans.items(), events["step_ms"]):
        within = [scrape for scrape in scrapes if first <= scrape.time_s <= last]
        if len(within) > 1:
            print(f"| {events['case']} {name} | {step_ms} | {line(window(within))} |", flush=True)


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip())
        return 3
    print("| run | step ms | data segments/s | retransmitted % | queue kB | busiest % | busy % | best peer's RTT ms |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in sys.argv[1:]:
        try:
            print_figures(folder)
        except (OSError, ValueError, Failure) as error:
            print(f"{folder}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
