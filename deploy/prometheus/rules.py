#!/usr/bin/env python3
"""The verdicts of `kitty diagnose` as Prometheus rules, for any scrape interval.

    rules.py --window 1m [--interval 15s] [--job-label job] > kitty-rules.yml
    rules.py --window 1m --kubernetes | kubectl apply -f -

--window is what a verdict looks at: at least three scrape intervals, better four. --interval is how often it is made:
the scrape interval, a quarter of the window by default. --job-label is the label that holds JOB_NAME: `job` where
kitty is scraped with honor_labels, `train_job` with scrape-relabelled.yml. --kubernetes makes the same rules a
PrometheusRule for the Prometheus Operator. Thresholds are read from verdict/thresholds.h, so that both engines compare
with the same figures.

How the rules go: which unit (a node; a network namespace where the job is on one node) a process and a peer's address
belong to; what one unit sent another (a flow: labels unit, to); what a link, a flow in either direction, looks like;
then the judge's rules in the judge's order, each for the jobs about which no earlier one spoke; at last whom two
evaluations in a row named. A rule sees what the rules above it recorded in the same evaluation, and of itself what it
recorded in the one before. Needs Prometheus 2.30 or later.

Where PromQL cannot say what the judge does, the comment says so, and the rule names nobody rather than somebody wrong.
"""

import argparse
import os
import re
import sys
import textwrap

# Of the job's largest flow: in a ring the small ones, acknowledgements of steps, carry a fiftieth.
LARGE_SHARE = 0.25
PROMETHEUS_RULE = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kitty
  namespace: kitty
spec:"""
HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "verdict", "thresholds.h")


def seconds_of(text):
    """90 of 1m30s; Prometheus' own spelling of durations."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    parts = re.findall(r"(\d+)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text}: not a duration such as 15s or 1m")
    return sum(int(number) * units[unit] for number, unit in parts)


def spelled(seconds):
    """As Prometheus reads it; a window of 60 s is 60s, as good as 1m."""
    return f"{seconds:g}s" if seconds == int(seconds) else f"{round(seconds * 1000)}ms"


class Thresholds:
    """The constants of verdict/thresholds.h: kRttRatio as .RttRatio, in the form PromQL reads."""

    def __init__(self, path):
        with open(path) as file:
            text = file.read()
        found = re.findall(r"^inline constexpr double k(\w+) = ([0-9.e+* -]+);", text, re.MULTILINE)
        self.values_ = {}
        for name, expression in found:
            value = 1.0
            for factor in expression.split("*"):
                value *= float(factor)
            self.values_[name] = value
        self.path_ = path

    def __getattr__(self, name):
        if name not in self.values_:
            raise SystemExit(f"{self.path_}: no constant k{name}")
        return f"{self.values_[name]:g}" if self.values_[name] < 1e6 else repr(self.values_[name])


def labelled(expression, **labels):
    """`expression` with labels set to constants."""
    for name, value in labels.items():
        expression = f'label_replace({expression}, "{name}", "{value}", "", "")'
    return expression


def renamed(expression, source, target):
    return f'label_replace({expression}, "{target}", "$1", "{source}", "(.*)")'


def depths(text):
    """(position, depth of parentheses) of each character outside of strings; a parenthesis counts as outside."""
    depth, quoted, at = 0, False, 0
    while at < len(text):
        if text[at] == '"':
            quoted = not quoted
        elif not quoted:
            depth -= text[at] == ")"
            yield at, depth
            depth += text[at] == "("
        at += 1


def laid_out(text, indent, width=118):
    """An expression in lines: broken before set operators, and within the widest parentheses."""
    text = text.strip()
    if indent + len(text) <= width:
        return [" " * indent + text]
    level = [at for at, depth in depths(text) if depth == 0]
    breaks = [at for at in level if re.match(r" (and|or|unless)\b", text[at:])]
    breaks = breaks or [at for at in level if text.startswith(" * on", at)]
    if breaks:
        ends = breaks + [len(text)]
        starts = [0] + breaks
        return [line for start, end in zip(starts, ends) for line in laid_out(text[start:end], indent, width)]
    opens = [at for at in level if text[at] == "("]
    closes = [at for at in level if text[at] == ")"]
    if not opens:
        return [" " * indent + text]
    start, end = max(zip(opens, closes), key=lambda pair: pair[1] - pair[0])
    inner = text[start + 1 : end].strip()
    # The names that label_replace() takes stay together.
    commas = [at for at, depth in depths(inner) if depth == 0 and re.match(r', (?!")|, (?="[^"]*", "\$1)', inner[at:])]
    parts = [inner[a:b] for a, b in zip([0] + [at + 2 for at in commas], [at + 1 for at in commas] + [len(inner)])]
    body = [line for part in parts for line in laid_out(part, indent + 2, width)]
    return [" " * indent + text[: start + 1], *body, " " * indent + text[end:]]


class Rules:
    def __init__(self, window_s, interval_s, job, thresholds):
        self.window_s = window_s
        self.interval_s = interval_s
        self.W = spelled(window_s)
        self.I = spelled(interval_s)
        # The last two evaluations, whether a range holds its left end (Prometheus 2) or not (3).
        self.two = spelled(interval_s * 1.5)
        # What a stall is judged on: three scrapes, and as long as two retransmission timeouts take.
        self.stall_s = max(float(thresholds.StallS), 2 * interval_s)
        self.S = spelled(self.stall_s)
        # Two users' jobs of one name are two: whoever likes may put another's name and rank into his environment.
        self.job = job
        self.J = f"{job}, uid"
        self.P = f"{job}, instance, pid, rank"
        self.U = f"{self.J}, unit"
        self.F = f"{self.J}, unit, to"
        self.k = thresholds
        self.lines_ = []

    def emit(self, kind, name, comment, expression, more=""):
        for line in textwrap.wrap(comment, 112):
            self.lines_.append(f"      # {line}")
        self.lines_.append(f"      - {kind}: {name}")
        self.lines_.append("        expr: |")
        self.lines_ += laid_out(re.sub(r"\s+", " ", expression).replace("( ", "(").replace(" )", ")"), 10)
        if more:
            self.lines_.append(textwrap.indent(textwrap.dedent(more).strip("\n"), "        "))

    def record(self, name, comment, expression):
        self.emit("record", name, comment, expression)

    # Parts of expressions.

    def of_flow(self, expression):
        """A series per peer, with the user and the units at both ends; peers that are no rank's address drop out."""
        return f"({expression}) * on ({self.P}, peer) group_left (uid, unit, to) kitty:peer_unit"

    def swapped(self, expression):
        """A flow's series under the name of the flow in the other direction; leaves a label `was`."""
        return renamed(renamed(renamed(expression, "unit", "was"), "to", "unit"), "was", "to")

    def either(self, aggregate, expression):
        """Of both directions of a link, under both its names."""
        there = labelled(expression, way="there")
        back = labelled(self.swapped(expression), way="back")
        return f"{aggregate} by ({self.F}) (\n  {there}\n  or\n  {back}\n)"

    def towards(self, units):
        """A unit's series as a matcher of the label `to`."""
        return renamed(units, "unit", "to")

    def per_end(self, aggregate, flows):
        """Of all flows that begin or end at a unit."""
        begins = labelled(flows, end="begins")
        ends = labelled(self.swapped(flows), end="ends")
        return f"{aggregate} by ({self.U}) ({begins} or {ends})"

    def lower_median(self, expression):
        """Of the units of a job. quantile() takes the mean of the two in the middle of an even number, which a fault
        can spoil: up to 16 units take the lower one, more hardly care."""
        count = f"count by ({self.J}) ({expression})"
        parts = [
            f"quantile by ({self.J}) ({(n / 2 - 1)} / {n - 1}, {expression}) and on ({self.J}) {count} == {n}"
            for n in range(2, 17, 2)
        ]
        parts.append(f"quantile by ({self.J}) (0.5, {expression})")
        return f"\nor on ({self.J})\n".join(parts)

    def write(self):
        self.map_units()
        self.measure_flows()
        self.measure_links()
        self.judge_stall()
        self.judge_rtt()
        self.judge_loss()
        self.judge_busy()
        self.judge_job_wide()
        self.name()
        self.alert()
        self.alert_blind()
        return self.lines_

    # Who is where.

    def map_units(self):
        info = 'kitty_process_info{role="rank"}'
        # Each agent numbers what has no rank (?0, ?1, ...) by itself: nobody else claims the same.
        claiming = 'kitty_process_info{role="rank", rank!~"[?].*"}'
        connected = f"({claiming} and on ({self.P}) kitty_process_address_info)"
        self.record(
            "kitty:contested_rank",
            "Ranks that processes with connections claim in several network namespaces: one of them is not what it "
            "says, and nobody knows which. Neither is judged.",
            f"""
            count by ({self.J}, rank) (group by ({self.J}, rank, instance, netns) ({connected})) > 1""",
        )
        judged = f"({info} unless on ({self.J}, rank) kitty:contested_rank)"
        self.record(
            "kitty:process_unit",
            "The unit of each rank: what shares addresses and an interface cannot be told apart. A node, that is a "
            "scrape's instance, where the job spans several; else a network namespace.",
            f"""
            max by ({self.P}, uid, unit) (
              {renamed(judged, "instance", "unit")}
                and on ({self.J}) count by ({self.J}) (group by ({self.J}, instance) ({info})) > 1
              or on ({self.J})
              label_join({judged}, "unit", " netns ", "instance", "netns")
            )""",
        )
        address = 'kitty_process_address_info{address!~"127[.].*|::1"}'
        owned = f"{address} * on ({self.P}) group_left (uid, unit) kitty:process_unit"
        self.record(
            "kitty:address_unit",
            "Whose address a peer is. Loopback is everybody's.",
            f"""
            max by ({self.J}, peer, to) (
              {self.towards(renamed(f"({owned})", "address", "peer"))}
            )""",
        )
        self.record(
            "kitty:peer_unit",
            "From which unit to which a rank's traffic to a peer goes: not within a unit, and not to an address that "
            "several units claim.",
            f"""
            group by ({self.P}, peer) (kitty_peer_data_segments_sent_total)
            * on ({self.P}) group_left (uid, unit) kitty:process_unit
            * on ({self.J}, peer) group_left (to) (
              kitty:address_unit
              unless on ({self.J}, peer) count by ({self.J}, peer) (kitty:address_unit) > 1
            )
            unless on ({self.F}) {self.towards("kitty:process_unit")}""",
        )

    # What one unit sent another. Rates of all, the rest only where they have a meaning.

    def measure_flows(self):
        rate = lambda name: self.of_flow(f"rate({name}[{self.W}])")
        active = f"kitty:flow_data_segments:rate >= {self.k.ActiveSegmentsPerS}"
        self.record(
            "kitty:flow_data_segments:rate",
            "Data segments a second.",
            f'sum by ({self.F}) ({rate("kitty_peer_data_segments_sent_total")}) > 0',
        )
        self.record(
            "kitty:flow_rtt_samples:rate",
            "RTT samples a second. Of messages of one segment each is a sample, and it holds the receiver's thinking "
            "time.",
            f'sum by ({self.F}) ({rate("kitty_peer_rtt_seconds_count")}) > 0',
        )
        self.record(
            "kitty:flow_data_segments_judged:rate",
            "The flows by which one can judge: active, that is no control traffic, and of messages of several "
            "segments.",
            f"""
            {active}
            unless on ({self.F})
              kitty:flow_data_segments:rate < {self.k.SegmentsPerSample} * kitty:flow_rtt_samples:rate""",
        )
        self.record(
            "kitty:flow_rtt_seconds:mean",
            "The exact mean of the window.",
            f"""
            sum by ({self.F}) ({rate("kitty_peer_rtt_seconds_sum")})
            / (kitty:flow_rtt_samples:rate * {self.window_s:g} >= {self.k.MinRttSamples}) * {self.window_s:g}""",
        )
        self.record(
            "kitty:flow_rtt_seconds:least",
            "The least of the 500 ms minima that the scrapes show. Nearly the mean on a longer path; far below it "
            "where a queue empties now and then.",
            f"""
            min by ({self.F}) ({self.of_flow(f"min_over_time(kitty_peer_rtt_min_seconds[{self.W}])")})
            and on ({self.F}) kitty:flow_rtt_samples:rate""",
        )
        self.record(
            "kitty:flow_rtt_seconds:usual_least",
            "Their median, which a few scrapes of another time hardly move.",
            f"""
            min by ({self.F}) ({self.of_flow(f"quantile_over_time(0.5, kitty_peer_rtt_min_seconds[{self.W}])")})
            and on ({self.F}) kitty:flow_rtt_samples:rate""",
        )
        self.record(
            "kitty:flow_busy:share",
            "The part of the time that it had data queued or in flight.",
            f"""
            clamp_max(max by ({self.F}) ({rate("kitty_peer_busy_seconds_total")}), 1)
            and on ({self.F}) kitty:flow_data_segments_judged:rate""",
        )
        self.record(
            "kitty:flow_queue_bytes:mean",
            "Written by the process and not yet acknowledged, at the scrapes.",
            f'sum by ({self.F}) ({self.of_flow(f"avg_over_time(kitty_peer_tx_queue_bytes[{self.W}])")}) > 0',
        )
        self.record(
            "kitty:flow_retransmits:rate",
            "Segments sent again a second.",
            f'sum by ({self.F}) ({rate("kitty_peer_retransmits_total")}) > 0',
        )

    def measure_links(self):
        least = "kitty:flow_rtt_seconds:usual_least"
        judged_rtt = "(kitty:flow_rtt_seconds:mean and kitty:flow_data_segments_judged:rate)"
        self.record(
            "kitty:link_active",
            "Links with an active flow in either direction, under both their names.",
            self.either("max", f"(kitty:flow_data_segments:rate >= {self.k.ActiveSegmentsPerS})"),
        )
        self.record(
            "kitty:link_rtt_seconds",
            "The better of what its ends measured: a slow path is slow from both ends, while delayed ACKs make one "
            "end's small messages look slow.",
            self.either("min", judged_rtt),
        )
        self.record(
            "kitty:link_long_path",
            "Links whose path is as long as the mean says: the minimum has risen with it at both ends, or, of one end, "
            "beyond what a delayed ACK explains.",
            f"""
            kitty:link_rtt_seconds
            and on ({self.F}) {self.either("min", least)} >= {self.k.QueueMinShare} * kitty:link_rtt_seconds
            and on ({self.F}) (
              {self.either("count", least)} == 2 or {self.either("min", least)} >= {self.k.DelayedAckS}
            )""",
        )
        self.record(
            "kitty:unit_rtt_seconds:best",
            "A victim has a healthy link, a culprit has none.",
            f"min by ({self.U}) (kitty:link_rtt_seconds)",
        )
        self.record(
            "kitty:unit_links",
            "Active links of each unit.",
            f"count by ({self.U}) (kitty:link_active)",
        )
        self.record(
            "kitty:job_units",
            "Jobs that can be judged: of two ends nobody can say which is slow.",
            f"count by ({self.J}) (kitty:unit_links) >= 3",
        )
        self.record(
            "kitty:job_rtt_seconds:median",
            "What a link is compared with: the best link of the median unit, the lower one of an even number.",
            self.lower_median("kitty:unit_rtt_seconds:best"),
        )
        self.record(
            "kitty:unit_busy:share",
            "Over all flows of a unit: who exchanges data with one peer after another is busy with each a part of the "
            "time.",
            f"clamp_max(sum by ({self.U}) (kitty:flow_busy:share), 1)",
        )

    def slow(self, expression):
        median = "kitty:job_rtt_seconds:median"
        return (
            f"({expression} > on ({self.J}) group_left () ({self.k.RttRatio} * {median})"
            f" > on ({self.J}) group_left () ({median} + {self.k.RttFloorS}))"
        )

    # Rule 1, stall.

    def judge_stall(self):
        rate = lambda name: f"rate({name}[{self.S}])"
        queue = f"kitty_peer_tx_queue_bytes[{self.S}]"
        acked = f"{rate('kitty_peer_rtt_seconds_count')} > 0"
        moves = f"({rate('kitty_peer_data_segments_sent_total')} >= {self.k.ActiveSegmentsPerS} and {acked})"
        self.record(
            "kitty:stalled_flow",
            f"Bytes queued at each scrape of the last {self.S} and not one ACK, while no flow of the job gets on. "
            "Segments may leave: retransmits, and dozens that the sender's own interface refuses again and again. "
            "Without an RTT hook nobody counts ACKs.",
            f"""
            max by ({self.F}) (
              {self.of_flow(
                  f"min_over_time({queue}) > 0 and count_over_time({queue}) > 1 "
                  f"and {rate('kitty_peer_rtt_seconds_count')} == 0 "
                  f'unless on (instance) kitty_rtt_hook_info{{hook="none"}}')}
            )
            unless on ({self.J}) {self.of_flow(moves)}""",
        )
        sent = (
            f"{rate('kitty_peer_data_segments_sent_total')} > 0 or {rate('kitty_peer_retransmits_total')} > 0"
        )
        in_vain = f"(kitty:stalled_flow and on ({self.F}) {self.of_flow(sent)})"
        self.record(
            "kitty:stalled_flow_in_vain",
            "Those that sent something in vain: that is the network, while a receiver that does not read gets only "
            "window probes. First those with more than a heartbeat queued: the other end's small messages lack their "
            "ACKs, too.",
            f"""
            ({in_vain} and on ({self.F}) kitty:stalled_flow >= {self.k.ThrottleQueueFloorBytes})
            or on ({self.J}) {in_vain}""",
        )
        vain = "kitty:stalled_flow_in_vain"
        evidence = f"({vain} or (kitty:stalled_flow unless on ({self.J}) {vain}))"
        count = f"count by ({self.J}) {evidence}"
        self.record(
            "kitty:stalled_end",
            "Units at which all of these flows begin or end.",
            f'{self.per_end("count", evidence)} == on ({self.J}) group_left () {count}',
        )
        one_in_vain = f"({vain} and on ({self.J}) count by ({self.J}) ({vain}) == 1)"
        units = f"count by ({self.J}) (group by ({self.U}) (kitty:process_unit)) > 2"
        self.record(
            "kitty:stalled_unit",
            "The only such unit, or the sender of the only flow in vain. As retransmits come at ever longer intervals, "
            "whom an earlier evaluation named stays so while its flows stall.",
            f"""
            (kitty:stalled_end and on ({self.J}) count by ({self.J}) (kitty:stalled_end) == 1)
            or (max by ({self.U}) ({one_in_vain}) and on ({self.J}) {units})
            or on ({self.J}) (kitty:stalled_unit and on ({self.U}) ({self.per_end("max", "kitty:stalled_flow")}))""",
        )

    # Rules 2 and 4, by RTT.

    def judge_rtt(self):
        best = "kitty:unit_rtt_seconds:best"
        self.record(
            "kitty:slow_unit:suspect",
            "Units none of whose links is healthy, where others have one.",
            f'{self.slow(best)} and on ({self.J}) kitty:job_units unless on ({self.J}) kitty:stalled_flow',
        )
        suspect = "kitty:slow_unit:suspect"
        busy = "kitty:flow_busy:share"
        busy_here = self.per_end("max", busy)
        others = f"{busy} unless on ({self.U}) {suspect} unless on ({self.J}, to) {self.towards(suspect)}"
        elsewhere = f"max by ({self.J}) ({others})"
        self.record(
            "kitty:slow_unit:convincing",
            "Those whose slowness is the network's, and not a receiver's that delays its ACKs: all its paths are long, "
            "or its flows are busy and those that touch no suspect are not. (The judge compares with all flows that do "
            "not touch this one.) The end of a chain, which has only a link to another suspect, is none.",
            f"""
            {suspect}
            and on ({self.U}) (
              ({suspect} unless on ({self.U}) (kitty:link_rtt_seconds unless on ({self.F}) kitty:link_long_path))
              or (
                {busy_here} >= {self.k.ConvincingBusyShare}
                unless on ({self.U}) {busy_here} < on ({self.J}) group_left () ({self.k.BusyRatio} * {elsewhere})
              )
            )
            unless on ({self.U}) (
              kitty:link_active
              and on ({self.U}) kitty:unit_links == 1
              and on ({self.J}, to) {self.towards(f"({suspect} and on ({self.U}) kitty:unit_links > 1)")}
            )""",
        )
        convincing = "kitty:slow_unit:convincing"
        worst = f"topk by ({self.J}) (1, {convincing})"
        own = (
            f"min by ({self.U}) (kitty:link_rtt_seconds unless on ({self.F}) "
            f"(kitty:link_rtt_seconds and on ({self.J}, to) {self.towards(f'({worst})')}))"
        )
        pair = (
            f"(kitty:link_active and on ({self.U}) {convincing} and on ({self.U}) kitty:unit_links == 1 "
            f'and on ({self.J}, to) {self.towards("(kitty:unit_links == 1)")})'
        )
        self.record(
            "kitty:slow_unit",
            "The slowest, and who is as slow without what it has with the slowest. Two that talk to each other only "
            "are a link.",
            f"""
            ({convincing} and on ({self.U}) {self.slow(f"({own})")})
            and on ({self.U})
              ({own}) >= on ({self.J}) group_left () ({self.k.RunnerUpShare} * max by ({self.J}) ({convincing}))
            unless on ({self.U}) {pair}""",
        )
        link = "kitty:link_rtt_seconds"
        link_busy = self.either("max", busy)
        busy_elsewhere = f"max by ({self.J}) ({link_busy} unless on ({self.F}) {self.slow(link)})"
        slow_link = (
            f"({self.slow(link)} and on ({self.J}) kitty:job_units unless on ({self.J}) kitty:stalled_flow)"
        )
        self.record(
            "kitty:slow_link",
            "Links that are slow though both their ends have a healthy one, under both their names: their paths are "
            "long, or they are busy when those that are not slow are not.",
            f"""
            (
              {slow_link}
              and on ({self.F}) (
                kitty:link_long_path
                or (
                  {link_busy} >= {self.k.ConvincingBusyShare}
                  unless on ({self.F}) {link_busy} < on ({self.J}) group_left () ({self.k.BusyRatio} * {busy_elsewhere})
                )
              )
              unless on ({self.J}) kitty:slow_unit
            )
            or {pair}""",
        )

    # Rule 5, loss.

    def judge_loss(self):
        median = "kitty:job_rtt_seconds:median"
        largest = f"max by ({self.J}) (kitty:flow_data_segments:rate)"
        self.record(
            "kitty:flow_retransmits:share",
            "Segments sent again, of the flows that carry a good part of what the largest of the job does: on a small "
            "one a handful is chance. Not of those whose RTT is raised: a full queue drops, too, and that is no loss.",
            f"""
            (kitty:flow_retransmits:rate or 0 * kitty:flow_data_segments:rate) / on ({self.F}) (
              kitty:flow_data_segments:rate > on ({self.J}) group_left () ({LARGE_SHARE} * {largest})
              >= {self.k.ActiveSegmentsPerS}
            )
            unless on ({self.F})
              kitty:flow_rtt_seconds:mean > on ({self.J}) group_left () ({median} + {self.k.RttFloorS})""",
        )
        share = "kitty:flow_retransmits:share"
        part = lambda name, when: f"sum by ({self.F}) ({self.of_flow(f'rate({name}[{self.S}]{when})')})"
        at = lambda when: (
            f"{part('kitty_peer_retransmits_total', when)} / {part('kitty_peer_data_segments_sent_total', when)}"
        )
        self.record(
            "kitty:job_retransmits:median",
            "What that is compared with.",
            self.lower_median(share),
        )
        self.record(
            "kitty:lossy_flow",
            "Far more than it should, early and late in the window: a burst, as when a throttle goes, is past. Whether "
            "more than the others, the rules below ask. Only after RTT.",
            f"""
            {share} > {self.k.LossShare}
            and on ({self.F}) {at("")} > {self.k.LossShare}
            and on ({self.F}) {at(f" offset {spelled(self.window_s - self.stall_s)}")} > {self.k.LossShare}
            and on ({self.F}) kitty:flow_retransmits:rate * {self.window_s:g} >= {self.k.MinRetransmits}
            and on ({self.J}) kitty:job_units
            unless on ({self.J}) (kitty:slow_unit or kitty:slow_link or kitty:stalled_flow)""",
        )
        lossy = "kitty:lossy_flow"
        clean = f"({share} <= {self.k.LossShare})"
        usual = f"clamp_min(kitty:job_retransmits:median, {self.k.LossFloor})"
        end = f"({self.per_end('count', lossy)} == on ({self.J}) group_left () count by ({self.J}) ({lossy}))"
        sends = f"({end} and on ({self.U}) {lossy} unless on ({self.U}) {clean})"
        gets = f"({end} and on ({self.U}) {self.swapped(lossy)} unless on ({self.U}) {self.swapped(clean)})"
        self.record(
            "kitty:lossy_end",
            "Units at which all of these flows begin or end, less those that another flow in the same direction, one "
            "without loss, clears.",
            f"""
            ({sends} or {gets})
            and on ({self.J}) max by ({self.J}) ({lossy}) > {self.k.LossRatio} * {usual}""",
        )
        ends = f"count by ({self.J}) (kitty:lossy_end)"
        one = f"({lossy} and on ({self.J}) count by ({self.J}) ({lossy}) == 1)"
        self.record(
            "kitty:lossy_unit",
            "The one that is left, with its worst flow; of the two ends of a single flow the sender, for only it "
            "knows. (The judge looks at the small flows of both ends, too, before it says so.)",
            f"""
            {self.per_end("max", lossy)}
            and on ({self.U}) (
              (kitty:lossy_end and on ({self.J}) {ends} == 1)
              or (kitty:lossy_end and on ({self.U}) {one} and on ({self.J}) {ends} == 2)
            )""",
        )
        links = self.either("max", lossy)
        self.record(
            "kitty:lossy_link",
            "Where each end has flows without loss, or both ways of one link lose: the link, under both its names.",
            f"""
            {links}
            and on ({self.J}) max by ({self.J}) ({lossy}) > {self.k.LossRatio} * {usual}
            and on ({self.J}) count by ({self.J}) ({links}) <= {2 * float(self.k.MaxNamedLinks):g}
            and on ({self.J}) {end}
            unless on ({self.J}) kitty:lossy_unit""",
        )

    # Rule 3, busy share alone.

    def judge_busy(self):
        busy = "kitty:unit_busy:share"
        top = f"topk by ({self.J}) (1, {busy})"
        rate = f"sum by ({self.U}) (kitty:flow_data_segments_judged:rate)"
        next_ = f"max by ({self.J}) ({busy} unless on ({self.U}) {top})"
        others = self.lower_median(f"({rate} unless on ({self.U}) {top})")
        queued = f"sum by ({self.U}) (kitty:flow_queue_bytes:mean) >= {self.k.ThrottleQueueFloorBytes}"
        slower = (
            f"kitty:unit_rtt_seconds:best >= on ({self.J}) group_left () "
            f"({self.k.SlowerRatio} * kitty:job_rtt_seconds:median)"
        )
        self.record(
            "kitty:busy_unit",
            "Where a queue does not show in the RTT: one unit is busy most of the time with bytes queued, the next "
            "far less; or a good part of it, the next hardly, and its RTT is longer or bytes are queued; though it sends no more than they do.",
            f"""
            (
              ({top}) > {self.k.BusyShare} > on ({self.J}) group_left () ({self.k.BusyRatio} * {next_})
              and on ({self.U}) {queued}
              or
              ({top}) > {self.k.FarBusyShare} > on ({self.J}) group_left () ({self.k.FarBusyRatio} * {next_})
              and on ({self.U}) ({queued} or {slower})
            )
            and on ({self.J}) kitty:job_units
            and on ({self.J}) count by ({self.J}) ({busy}) >= 3
            unless on ({self.U}) {rate} > on ({self.J}) group_left () ({self.k.SameWorkRatio} * ({others}))
            unless on ({self.J}) (kitty:slow_unit or kitty:slow_link or kitty:lossy_flow or kitty:stalled_flow)""",
        )

    # Rule 6, everybody.

    def judge_job_wide(self):
        link = "kitty:link_rtt_seconds"
        bad = (
            f"({link} >= {self.k.JobWideRttS} and on ({self.F}) (kitty:link_long_path or "
            f"{self.either('max', 'kitty:flow_busy:share')} >= {self.k.BusyShare}))"
        )
        earlier = "(kitty:slow_unit or kitty:slow_link or kitty:lossy_flow or kitty:busy_unit or kitty:stalled_flow)"
        links = f"(count by ({self.J}) (kitty:slow_link) > {2 * float(self.k.MaxNamedLinks):g})"
        lossy = f"(count by ({self.J}) (kitty:lossy_flow) unless on ({self.J}) (kitty:lossy_unit or kitty:lossy_link))"
        everywhere = (
            f"(min by ({self.J}) ({link}) and on ({self.J}) kitty:job_units "
            f"unless on ({self.J}) (kitty:link_active unless on ({self.F}) {bad}) unless on ({self.J}) {earlier})"
        )
        stalled = (
            f"(count by ({self.J}) (kitty:stalled_flow) unless on ({self.J}) (kitty:stalled_end or kitty:stalled_unit))"
        )
        self.record(
            "kitty:accused_job",
            "What is nobody's: stalled flows without an end in common; more slow links than a link's fault makes; "
            "loss at several units; every link slow, which needs no healthy one to compare with.",
            "\nor\n".join(
                [
                    labelled(stalled, cause="stalled"),
                    labelled(f"({links} unless on ({self.J}) {stalled})", cause="latency"),
                    labelled(lossy, cause="loss"),
                    labelled(everywhere, cause="latency"),
                ]
            ),
        )

    # Why, and whom two evaluations in a row named.

    def name(self):
        queue = f"(sum by ({self.U}) (kitty:flow_queue_bytes:mean) or 0 * kitty:unit_links)"
        min_share = "(kitty:flow_rtt_seconds:least / kitty:flow_rtt_seconds:mean)"
        others = self.lower_median(f"({queue} unless on ({self.U}) kitty:slow_unit)")
        self.record(
            "kitty:job_queue_bytes:median",
            "What a queue is compared with, of the units that are not slow.",
            f"clamp_min({others}, {self.k.ThrottleQueueFloorBytes})",
        )
        limit = f"{self.k.ThrottleQueueRatio} * kitty:job_queue_bytes:median"
        unit_share = self.per_end("min", min_share)
        usual_least = self.either("min", "kitty:flow_rtt_seconds:usual_least")
        usual_share = f"min by ({self.U}) ({usual_least} / on ({self.F}) kitty:link_rtt_seconds)"
        least = "kitty:flow_rtt_seconds:like_least"
        self.record(
            least,
            "The usual least RTT of what active links measured: a longer path raises all of it alike.",
            "kitty:flow_rtt_seconds:usual_least and kitty:flow_rtt_seconds:mean and kitty:link_active",
        )

        def unlike(of):
            low, high = of("min", least), of("max", least)
            return f"({low} < {self.k.PathLikeShare} * {high} and {high} - {low} > {self.k.PathSpreadS})"

        self.record(
            "kitty:throttled_unit",
            "Slow units with a queue that a longer path would not have: busy, full, and of one flow at least the "
            "minimum did not rise like the mean; or, however busy they are, the flows' minima differ, or are usually far "
            "below.",
            f"""
            kitty:slow_unit
            and on ({self.U}) (
              (
                kitty:unit_busy:share > {self.k.ThrottleBusyShare}
                and on ({self.U}) ({queue} > on ({self.J}) group_left () ({limit}))
                and on ({self.U}) {unit_share} < {self.k.PathMinShare}
              )
              or {usual_share} < {self.k.QueueMinShare}
              or {unlike(self.per_end)}
            )""",
        )
        self.record(
            "kitty:accused_unit",
            "Whom this evaluation names, and why.",
            "\nor\n".join(
                [
                    labelled("kitty:stalled_unit", cause="stalled"),
                    labelled("kitty:throttled_unit", cause="throttle"),
                    labelled(f"(kitty:slow_unit unless on ({self.U}) kitty:throttled_unit)", cause="latency"),
                    labelled("kitty:lossy_unit", cause="loss"),
                    labelled("kitty:busy_unit", cause="throttle"),
                ]
            ),
        )
        stalled_link = (
            f"(kitty:stalled_flow and on ({self.U}) kitty:stalled_end and on ({self.J}, to) "
            f"{self.towards('kitty:stalled_end')} unless on ({self.J}) kitty:stalled_unit)"
        )
        most = 2 * float(self.k.MaxNamedLinks)
        few = f"(kitty:slow_link and on ({self.J}) count by ({self.J}) (kitty:slow_link) <= {most:g})"
        link_share = self.either("min", min_share)
        throttled = (
            f"({few} and on ({self.F}) (({link_share} < {self.k.PathMinShare} and on ({self.F}) "
            f"{self.either('max', 'kitty:flow_busy:share')} > {self.k.ThrottleBusyShare}) or {unlike(self.either)}))"
        )
        self.record(
            "kitty:accused_link",
            "Links that this evaluation names, under both their names. A stalled one may be a receiver that does not "
            "read.",
            "\nor\n".join(
                [
                    labelled(self.either("max", stalled_link), cause="stalled"),
                    labelled(throttled, cause="throttle"),
                    labelled(f"({few} unless on ({self.F}) {throttled})", cause="latency"),
                    labelled("kitty:lossy_link", cause="loss"),
                ]
            ),
        )
        exists = f"and on ({self.U}) kitty:process_unit"
        for what, by, here, still in (
            ("unit", self.U, exists, " or kitty:slow_unit:suspect"),
            ("link", self.F, f"{exists} and on ({self.J}, to) {self.towards('kitty:process_unit')}", ""),
            ("job", self.J, f"and on ({self.J}) kitty:process_unit", ""),
        ):
            accused, named = f"kitty:accused_{what}", f"kitty:named_{what}"
            self.record(
                f"{accused}:seen",
                "The same without the cause: a queue that fills may read latency first.",
                f"group by ({by}) ({accused})",
            )
            comment = (
                "Named once two evaluations in a row agree on whom, with the cause of the latest, and cleared once two "
                "in a row do not name it. One without data neither confirms nor clears: steps may be longer than a "
                "window."
            )
            if still:
                comment += (
                    " Nor does one in which it is still slow but not convincing, as when its process is new or the job "
                    "sent nothing for half of the window."
                )
            self.record(
                named,
                comment,
                f"""
                ({accused} and on ({by}) (count_over_time({accused}:seen[{self.two}]) == 2 or {named}))
                or on ({by}) ({named} and on ({by}) (count_over_time({accused}:seen[{self.two}]){still}))
                or on ({by}) ({named} {here} unless on ({self.J}) (kitty:job_units or kitty:stalled_flow))""",
            )

    # What a person on call reads.

    def query(self, expression, *labels):
        """A template's query; each %q of the expression is one of these labels of the alert."""
        return f"query (printf `{expression}` {' '.join(labels)})"

    def of_job(self, series, *more, labels="$labels"):
        """A template's query of that series of the job of `labels`; `more` are pairs of a label and its value."""
        wanted = [(self.job, f"{labels}.{self.job}"), ("uid", f"{labels}.uid"), *more]
        matchers = ",".join(f"{name}=%q" for name, _ in wanted)
        return self.query(series.format(f"{{{matchers}}}"), *(value for _, value in wanted))

    def ranks(self, unit, labels="$labels"):
        """0,1,2 of a unit."""
        ranks = self.of_job("group by (rank) (kitty:process_unit{})", ("unit", unit), labels=labels)
        each = "{{ if $i }},{{ end }}{{ $r.Labels.rank }}"
        return f'{{{{ range $i, $r := {ranks} | sortByLabel "rank" }}}}{each}{{{{ end }}}}'

    def alert_(self, name, comment, expression, severity, summary, labels=None, hold_s=0):
        quoted = lambda text: "'" + text.replace("'", "''") + "'"
        lines = [f"for: {spelled(hold_s)}"] if hold_s else []
        lines += ["labels:", f"  severity: {severity}"]
        lines += [f"  {label}: {quoted(text)}" for label, text in (labels or {}).items()]
        lines += ["annotations:", f"  summary: {quoted(summary)}"]
        self.emit("alert", name, comment, expression, "\n".join(lines))

    def alert(self):
        J = f"{{{{ $labels.{self.job} }}}}"
        ranks = {"ranks": self.ranks("$labels.unit")}
        who = f"Job {J}: rank {ranks['ranks']} ({{{{ $labels.unit }}}})"
        of_unit = lambda series: self.of_job(series, ("unit", "$labels.unit"))
        show = lambda query, form: f"{{{{ range {query} }}}}{{{{ .Value | {form} }}}}{{{{ end }}}}"
        best = show(of_unit("kitty:unit_rtt_seconds:best{}"), "humanizeDuration")
        median = show(self.of_job("kitty:job_rtt_seconds:median{}"), "humanizeDuration")
        busy = show(of_unit("kitty:unit_busy:share{}"), "humanizePercentage")
        queue = show(of_unit("sum by (unit) (kitty:flow_queue_bytes:mean{})"), "humanize")
        lost = "{{ $value | humanizePercentage }}"
        usual = show(self.of_job("kitty:job_retransmits:median{}"), "humanizePercentage")
        unit = lambda cause: f'kitty:named_unit{{cause="{cause}"}}'
        self.alert_(
            "KittyStall",
            "The job stands still.",
            unit("stalled"),
            "critical",
            f"{who} is cut off: bytes are queued and not one is acknowledged; the others wait for it.",
            ranks,
        )
        self.alert_(
            "KittyLatency",
            "",
            unit("latency"),
            "warning",
            f"{who} has a longer way than the others: all its active links are slow, the best {best}; the best link of "
            f"the median rank {median}.",
            ranks,
        )
        self.alert_(
            "KittyThrottle",
            "",
            unit("throttle"),
            "warning",
            f"{who} has too little bandwidth: busy sending {busy} of the time, {queue}B queued, best link {best}; the "
            f"best link of the median rank {median}.",
            ranks,
        )
        self.alert_(
            "KittyLoss",
            "",
            unit("loss"),
            "warning",
            f"{who}: {lost} of the segments of a flow are sent again, of the median one {usual}: its outbound path "
            "loses, or the other end's inbound one.",
            ranks,
        )
        ends = self.of_job("kitty:named_link{}", ("cause", "$labels.cause"))
        link_ranks = (
            f'{{{{ range {ends} | sortByLabel "unit" }}}}{{{{ if lt .Labels.unit .Labels.to }}}}'
            f'[{self.ranks(".Labels.unit", ".Labels")} - {self.ranks(".Labels.to", ".Labels")}]'
            f"{{{{ end }}}}{{{{ end }}}}"
        )
        self.alert_(
            "KittySlowLink",
            "One alert a job, for a link has no first end.",
            f"max by ({self.J}, cause) (kitty:named_link)",
            "warning",
            f"Job {J}: between ranks {link_ranks}: {{{{ $labels.cause }}}}; what each exchanges with others is "
            "healthy.",
            {"ranks": link_ranks},
        )
        self.alert_(
            "KittyJobWide",
            "",
            "kitty:named_job",
            "warning",
            f"Job {J}: {{{{ $labels.cause }}}} everywhere: no rank or link differs, the network as a whole does.",
        )

    # What could not be seen.

    def alert_blind(self):
        hold_s = 4 * self.interval_s
        self.alert_(
            "KittyAgentDown",
            "job is the scrape job here, whatever label holds JOB_NAME. A node without an agent is a blind spot.",
            'up{job="kitty"} == 0',
            "info",
            "kitty at {{ $labels.instance }} does not answer: its ranks are not judged.",
            hold_s=hold_s,
        )
        self.alert_(
            "KittyNoRttHook",
            "",
            f'max by (instance, hook) (kitty_rtt_hook_info{{hook="none"}}) == 1',
            "info",
            "kitty at {{ $labels.instance }} has no RTT hook: no round-trip times and no counters of its own sockets. "
            "Run kitty check there.",
            hold_s=hold_s,
        )
        self.alert_(
            "KittyStale",
            "Processes are listed every 5 s; success is 0 where that failed or is over 15 s ago.",
            'max by (instance) (kitty_collector_success{collector="processes"}) == 0',
            "warning",
            "kitty at {{ $labels.instance }} does not see processes come and go: its ranks may be others by now. Its log "
            "says why.",
            hold_s=hold_s,
        )
        info = 'kitty_process_info{role="rank",world_size!=""}'
        ranks = f"count by ({self.J}) (group by ({self.J}, rank) (kitty:process_unit))"
        seen = f'count_values by ({self.J}) ("world_size", {ranks})'
        growing = lambda name: f"sum by (instance) (increase({name}[{self.W}])) > 0"
        parts = {
            "not all ranks of WORLD_SIZE are seen": (
                f"group by ({self.J}, world_size) ({info})\nunless on ({self.J}, world_size) {seen}"
            ),
            "no TCP data between ranks is seen: RDMA, or idle": (
                f"(count by ({self.J}) (group by ({self.U}) (kitty:process_unit)) > 1)\n"
                f"unless on ({self.J}) (kitty:unit_links or kitty:stalled_flow)"
            ),
            "a rank is claimed by processes in several network namespaces and not judged": (
                f"group by ({self.J}) (kitty:contested_rank)"
            ),
            "processes, sockets or series beyond a user's fair share of what kitty keeps": (
                "sum by (instance, uid) (kitty_dropped_by_uid) > 0"
            ),
            "processes cannot be read": 'sum by (instance) (kitty_unreadable_processes{reason!="overwritten"}) > 0',
            "more processes, sockets or series than kitty keeps": (
                "(sum by (instance) (kitty_processes_dropped) > 0\nor sum by (instance) (kitty_sockets_dropped) > 0\n"
                f"or {growing('kitty_series_dropped_total')}\nor {growing('kitty_flow_table_full_total')})\n"
                "unless on (instance) kitty_dropped_by_uid"
            ),
        }
        self.alert_(
            "KittyBlind",
            "WORLD_SIZE is a label, and only count_values() makes a label of a number: more ranks than it says are "
            "reported, too.",
            "\nor\n".join(labelled(f"({part})", reason=reason) for reason, part in parts.items()),
            "info",
            f"{{{{ with $labels.{self.job} }}}}Job {{{{ . }}}}{{{{ else }}}}"
            "kitty at {{ $labels.instance }}{{ end }}{{ with $labels.uid }}, uid {{ . }}{{ end }}: {{ $labels.reason }}.",
            hold_s=hold_s,
        )


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--window", type=seconds_of, required=True, metavar="DURATION")
    parser.add_argument("--interval", type=seconds_of, metavar="DURATION")
    parser.add_argument("--job-label", default="job", choices=("job", "train_job"))
    parser.add_argument("--kubernetes", action="store_true")
    parser.add_argument("--thresholds", default=HEADER, metavar="FILE")
    given = parser.parse_args()
    interval_s = given.interval or given.window / 4
    if given.window < 3 * interval_s:
        parser.error("--window: at least three times the interval, or a late scrape leaves nothing to compare")
    rules = Rules(given.window, interval_s, given.job_label, Thresholds(given.thresholds))
    print(f"# Made by rules.py --window {spelled(given.window)} --interval {spelled(interval_s)} --job-label "
          f"{given.job_label}{' --kubernetes' if given.kubernetes else ''}; change that, not this.")
    print("# What each rule is for, and what `kitty diagnose` does otherwise, is said above it.")
    group = f"groups:\n  - name: kitty\n    interval: {spelled(interval_s)}\n    rules:\n" + "\n".join(rules.write())
    if given.kubernetes:
        print(PROMETHEUS_RULE)
        group = textwrap.indent(group, "  ")
    print(group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
