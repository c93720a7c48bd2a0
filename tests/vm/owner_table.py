#!/usr/bin/env python3
"""The faults kitty was made for, injected on a veth link while it watches the sender: delay, loss, tbf, a stalled tbf.

    owner_table.py KITTY [--hook HOOK] [--expect-hook NAME] [--phases delay,loss,tbf,stall]

Runs as root where the kernel has netem and tbf, which is what vm/run gives. Prints a line per phase; exit status 0 when
each figure moved as it must and came back. Times are those of scrapes, taken every half second: the bounds are loose
enough for an emulated CPU, and no tighter than what the agent promises.
"""

import argparse
import os
import sys
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import Agent, Failure, Fault, Lab, Results, choose, median, rate, sent_bytes, show  # noqa: E402

SENDER, RECEIVER, PORT = "10.78.0.1", "10.78.0.2", 7000
INTERVAL_S = 0.05  # 20 messages of 14 segments a second: light, idle most of the time, 600 segments in a few seconds

OWN_RETRANSMITS = "kitty_tcp_retransmits_total"
RTT, RETRANSMITS = "net_tcp_rtt_us", "net_tcp_retransmits_total"
SEGMENTS, QUEUE = "net_tcp_out_segs_total", "net_tcp_tx_queue_bytes"


class Table:
    def __init__(self, agent, namespace, pid):
        self.agent = agent
        self.namespace = namespace
        self.labels = {"pid": str(pid), "rank": "0", "job": "vm"}

    def value(self, scrape, name):
        return scrape.value(name, **self.labels)

    def series(self, name, since, until=None):
        return self.agent.series(name, since, until, **self.labels)

    def measure(self, name, seconds):
        """The series over the coming so many seconds."""
        since = time.monotonic()
        time.sleep(seconds)
        return self.series(name, since)

    def wait(self, what, name, condition, limit_s, since=None):
        """Seconds from `since` to the first scrape whose value meets the condition, and that value."""
        since = time.monotonic() if since is None else since

        def met(scrape):
            value = self.value(scrape, name)
            return value is not None and condition(value)

        try:
            scrape = self.agent.wait(what, met, limit_s, since)
        except Failure as failure:
            raise Failure(f"{failure}; seen {name}: {show(self.series(name, since - 3), since)}") from None
        return scrape.time_s - since, self.value(scrape, name)

    def wait_flat(self, name, span_s, limit_s, since):
        """Seconds from `since` to the start of the first `span_s` in which the counter did not move."""
        while True:
            self.agent.check()
            series = self.series(name, since)
            start = 0
            for here in range(len(series)):
                if series[here][1] != series[start][1]:
                    start = here
                if series[here][0] - series[start][0] >= span_s:
                    return series[start][0] - since
            if time.monotonic() > since + limit_s + span_s:
                raise Failure(f"expected {name} flat for {span_s} s within {limit_s} s; seen {show(series, since)}")
            time.sleep(0.1)

    def wait_rate(self, at_least, limit_s, since):
        """Seconds from `since` until segments go out at that rate, over any 2 s."""
        while True:
            self.agent.check()
            series = self.series(SEGMENTS, since)
            for here, (time_s, _) in enumerate(series):
                recent = [sample for sample in series[: here + 1] if sample[0] >= time_s - 2.3]
                if time_s - recent[0][0] >= 1.5 and rate(recent) >= at_least:
                    return time_s - since
            if time.monotonic() > since + limit_s:
                raise Failure(
                    f"expected {SEGMENTS} at {at_least:.0f}/s again within {limit_s} s; seen {show(series, since)}"
                )
            time.sleep(0.1)

    def delay(self):
        quiet = median(self.measure(RTT, 6))
        with Fault(self.namespace, "netem", "delay", "50ms") as fault:
            up_s, up_us = self.wait(
                f"{RTT} 45..60 ms over its quiet {quiet / 1e3:.1f} ms", RTT,
                lambda value: 45_000 <= value - quiet <= 60_000, 2, fault.since,
            )  # fmt: skip
            time.sleep(5)
            held = self.series(RTT, fault.since + up_s)
        if not 45_000 <= median(held) - quiet <= 60_000:
            raise Failure(f"expected {RTT} to stay 45..60 ms over {quiet:.0f}; seen {show(held, fault.since)}")
        back_s, back_us = self.wait(
            f"{RTT} within 5 ms of its quiet {quiet / 1e3:.1f} ms", RTT,
            lambda value: abs(value - quiet) <= 5_000, 2, fault.until,
        )  # fmt: skip
        time.sleep(5)
        after = self.series(RTT, fault.until + back_s)
        if abs(median(after) - quiet) > 5_000:
            raise Failure(f"expected {RTT} to stay within 5 ms of {quiet:.0f}; seen {show(after, fault.until)}")
        return (
            f"quiet {quiet / 1e3:.1f} ms, fault {up_us / 1e3:.1f} ms after {up_s:.1f} s (median {median(held) / 1e3:.1f}), "
            f"back {back_us / 1e3:.1f} ms after {back_s:.1f} s"
        )

    def loss(self):
        self.wait_flat(RETRANSMITS, 5, 20, time.monotonic())
        with Fault(self.namespace, "netem", "loss", "5%") as fault:
            before = median(self.series(RETRANSMITS, fault.since - 3, fault.since))  # flat, as just seen
            rose_s, _ = self.wait(
                f"{RETRANSMITS} 20 over its quiet {before:g}", RETRANSMITS,
                lambda value: value - before >= 20, 90, fault.since,
            )  # fmt: skip
            time.sleep(max(0, fault.since + 10 - time.monotonic()))
            during = self.series(RETRANSMITS, fault.since)
        # What netem still held is dropped with it and sent again: the first seconds prove nothing.
        flat_s = 3 + self.wait_flat(RETRANSMITS, 5, 15, fault.until + 3)
        # All of the namespace's retransmits are this process's: what the BPF side counts must be what snmp says.
        own, all_of_them = (median(self.measure(name, 1)) for name in (OWN_RETRANSMITS, RETRANSMITS))
        if abs(own - all_of_them) > 0.05 * all_of_them:
            raise Failure(f"expected {OWN_RETRANSMITS} near {RETRANSMITS} {all_of_them:g}, seen {own:g}")
        return (
            f"quiet +0 in 5 s, fault +20 after {rose_s:.1f} s (+{rate(during) * 60:.0f}/min), "
            f"flat again by {flat_s:.1f} s after; {own:g} by its own sockets, {all_of_them:g} in its namespace"
        )

    def throttle(self, *qdisc, segments_below, quiet):
        """A tbf for 16 s: queue shown from 6 s on (its reading may be 5 s old), segments under the bound, both back."""
        with Fault(self.namespace, "tbf", *qdisc) as fault:
            time.sleep(16)
            segments = self.series(SEGMENTS, fault.since + 4)
            queue = self.series(QUEUE, fault.since + 6)
        seen = rate(segments)
        if seen >= segments_below:
            raise Failure(
                f"expected {SEGMENTS} under {segments_below:.1f}/s (quiet {quiet:.0f}/s), seen {seen:.1f}/s: "
                + show(segments, fault.since)
            )
        if median(queue) <= 0:
            raise Failure(f"expected {QUEUE} over 0, seen {show(queue, fault.since)}")
        flow_s = self.wait_rate(quiet / 2, 30, fault.until)
        drained_s, _ = self.wait(f"{QUEUE} at 0", QUEUE, lambda value: value == 0, 30, fault.until)
        return (
            f"quiet {quiet:.0f} segments/s, fault {seen:.1f}/s with {median(queue) / 1e3:.0f} kB queued, "
            f"flowing after {flow_s:.1f} s, queue 0 after {drained_s:.1f} s"
        )

    def quiet_segments(self):
        quiet = rate(self.measure(SEGMENTS, 6))
        if quiet < 30:
            raise Failure(f"expected traffic of some 280 segments/s before the fault, seen {quiet:.1f}/s")
        return quiet

    def tbf(self):
        bytes_before, before_s = sent_bytes(self.namespace), time.monotonic()
        quiet = self.quiet_segments()
        bytes_per_s = (sent_bytes(self.namespace) - bytes_before) / (time.monotonic() - before_s)
        bits_per_s = max(16_000, int(bytes_per_s * 8 / 10))
        # Burst: a few frames. Limit: over a message, so that nothing is lost, only late.
        figures = self.throttle(
            "rate", f"{bits_per_s}bit", "burst", "4500b", "limit", "200000b", segments_below=quiet / 3, quiet=quiet
        )
        return f"{bits_per_s // 1000} kbit: {figures}"

    def stall(self):
        # No full frame fits the bucket, so none ever leaves, and there is no ACK to hang a measurement on. What still
        # counts as sent is the kernel trying the same segment anew twice a second (TCP_RESOURCE_PROBE_INTERVAL).
        quiet = self.quiet_segments()
        return self.throttle(
            "rate", "1mbit", "burst", "1000b", "limit", "200000b", segments_below=quiet / 20, quiet=quiet
        )


def main():
    phases = {phase.__name__: phase for phase in (Table.delay, Table.loss, Table.tbf, Table.stall)}
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--hook", default="auto")
    parser.add_argument("--expect-hook")
    parser.add_argument("--phases", default=",".join(phases))
    given = parser.parse_args()
    chosen = choose(parser, given.phases, phases)
    results = Results()
    with Lab() as lab, Agent(given.kitty, f"--rtt-hook={given.hook}") as agent:
        left, right = lab.namespace("left"), lab.namespace("right")
        lab.join(left, [f"{SENDER}/24"], right, [f"{RECEIVER}/24"])
        lab.start_echo(right, RECEIVER, PORT)
        sender = lab.start_send(left, RECEIVER, PORT, INTERVAL_S, KITTY_WATCH="1", RANK="0", JOB_NAME="vm")
        table = Table(agent, left, sender.pid)

        def start():
            scrape = agent.wait("kitty_rtt_hook_info", lambda seen: seen.find("kitty_rtt_hook_info"), 60)
            hooks = [labels["hook"] for labels, value in scrape.find("kitty_rtt_hook_info") if value == 1]
            if len(hooks) != 1 or given.expect_hook not in (None, hooks[0]):
                raise Failure(f"expected hook {given.expect_hook or '(any one)'}, seen {hooks}:\n{agent.output()}")
            for name in (SEGMENTS, RETRANSMITS, QUEUE, RTT):
                table.wait(f"{name}{table.labels}", name, lambda _: True, 60)
            time.sleep(3)  # the connection's window has grown
            return f"hook {hooks[0]}"

        if results.record("start", start):
            for phase in chosen:
                results.record(phase.__name__, lambda phase=phase: phase(table))
        results.record("stop", lambda: f"status 0 in {agent.stop(10):.1f} s after SIGTERM")
        if results.failed and agent.process.poll() is not None:
            print(f"the agent's log:\n{agent.output()}")
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
