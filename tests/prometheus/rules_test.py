#!/usr/bin/env python3
"""The Prometheus side of kitty, without a network: promtool evaluates the rules over made-up jobs.

    rules_test.py [KITTY] [--thresholds FILE] [--cases NAME,...] [--recordings FOLDER...]

What is committed is what rules.py makes; promtool accepts it and both scrape configurations; each expression of the
dashboard parses. Then, for the committed windows of a minute and for windows of 3 s, jobs of a ring of ranks: each
alert is silent before its fault, fires within a window and three evaluations, stays for as long as the fault lasts (ten
windows), and is gone a window and three evaluations after it; nothing else fires. At last the recordings: the ranks and
causes in their events.json, and with KITTY given what `kitty diagnose` says of the same scrapes.
Exit status 77: promtool is not installed.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import replay  # noqa: E402

TOP = os.path.join(HERE, "..", "..")
DEPLOY = os.path.join(TOP, "deploy", "prometheus")
DASHBOARD = os.path.join(TOP, "deploy", "grafana", "kitty.json")
RECORDED = os.path.join(TOP, "tests", "training", "recorded")
THRESHOLDS = os.path.join(TOP, "verdict", "thresholds.h")
FIRING = "ALERTS{alertstate='firing'}"
COUNTERS = {
    "kitty_peer_data_segments_sent_total": "data",
    "kitty_peer_segments_sent_total": "data",
    "kitty_peer_rtt_seconds_count": "samples",
    "kitty_peer_rtt_seconds_sum": "rtt_sum",
    "kitty_peer_retransmits_total": "retransmits",
    "kitty_peer_busy_seconds_total": "busy",
}


class Flow:
    """What one rank does towards one peer in a second. Of a ring's two flows the large one, or the small one back."""

    def __init__(self, large):
        self.data = 5000.0 if large else 40.0
        self.samples = 60.0 if large else 20.0
        self.rtt = 0.0003
        self.least = 0.0001
        self.retransmits = 0.0
        self.busy = 0.03
        self.queue = 0.0

    @property
    def rtt_sum(self):
        return self.rtt * self.samples


class Job:
    """Ranks in a ring, one a node unless said otherwise, and the scrapes of them. Steps are scrape intervals."""

    def __init__(self, name="train", ranks=4, per_node=1, one_node=False, world_size=None, subnet=1, uid="1000"):
        self.name = name
        self.ranks = ranks
        self.per_node = per_node
        self.one_node = one_node
        self.world_size = str(ranks) if world_size is None else world_size
        self.subnet = subnet
        self.uid = uid
        self.restarted = {}  # rank -> step at which its process is another one
        self.agent_restarted = {}  # node -> step at which its counters begin anew
        self.outside = None  # (rank, flow): what it sends to no rank of the job
        self.extra_addresses = {}

    def node(self, rank):
        return 0 if self.one_node else rank // self.per_node

    def unit(self, rank):
        return f"n{self.node(rank)}:9100" + (f" netns {4000 + rank // self.per_node}" if self.one_node else "")

    def address(self, rank):
        return f"10.0.{self.subnet}.{10 + rank // self.per_node}"

    def flows(self):
        """{(rank, rank): flow}; with several ranks a node each has its own ring over the nodes."""
        out = {}
        units = self.ranks // self.per_node
        for rank in range(self.ranks):
            following = (rank + self.per_node) % self.ranks
            before = (rank - self.per_node) % self.ranks
            out[rank, before] = Flow(False)
            if units > 1:
                out[rank, following] = Flow(True)
        return out

    def series(self, steps, interval_s, fault, begin, end):
        """{series: [value or None of each step]}; `fault` changes the flows of a step, begin <= step < end."""
        series = collections.defaultdict(lambda: [None] * steps)
        totals = collections.Counter()
        for step in range(steps):
            flows = self.flows()
            if fault and begin <= step < end:
                fault(flows, step)
            for rank in range(self.ranks):
                restart = self.restarted.get(rank)
                reborn = restart is not None and step >= restart
                labels = {"instance": f"n{self.node(rank)}:9100", "job": self.name, "rank": str(rank)}
                labels["pid"] = str(1000 * self.subnet + rank + (500 if reborn else 0))

                def put(name, value, **more):
                    # What has no value is no label.
                    text = ",".join(f'{k}="{v}"' for k, v in {**labels, **more}.items() if v != "")
                    series[f"{name}{{{text}}}"][step] = f"{value:.9g}"

                put(
                    "kitty_process_info",
                    1,
                    role="rank",
                    uid=self.uid,
                    world_size=self.world_size,
                    netns=str(4000 + rank // self.per_node),
                    start_time_ticks=str(100 + (900 if reborn else 0)),
                )
                for address in [self.address(rank), "127.0.0.1", *self.extra_addresses.get(rank, [])]:
                    put("kitty_process_address_info", 1, address=address)
                peers = {self.address(to): flow for (source, to), flow in flows.items() if source == rank}
                if self.outside and self.outside[0] == rank:
                    peers["192.0.2.1"] = self.outside[1]
                for peer, flow in peers.items():
                    for name, field in COUNTERS.items():
                        key = (rank, peer, name)
                        if step in (restart, self.agent_restarted.get(self.node(rank))):
                            totals[key] = 0
                        totals[key] += getattr(flow, field) * interval_s
                        put(name, totals[key], peer=peer)
                    if flow.samples:
                        put("kitty_peer_rtt_min_seconds", flow.least, peer=peer)
                    put("kitty_peer_tx_queue_bytes", flow.queue, peer=peer)
        for node in {self.node(rank) for rank in range(self.ranks)}:
            # Of the scrape job, for they have no label of that name.
            common = f'instance="n{node}:9100",job="kitty"'
            for name, value in (
                (f"up{{{common}}}", 1),
                (f'kitty_rtt_hook_info{{{common},hook="fentry/tcp_ack_update_rtt"}}', 1),
                (f'kitty_unreadable_processes{{{common},reason="other"}}', 0),
                (f"kitty_sockets_dropped{{{common}}}", 0),
            ):
                series[name] = [str(value)] * steps
        return series


def touching(flows, rank):
    return [flow for ends, flow in flows.items() if rank in ends]


# Faults: what they do to the flows.


def long_path(rank, seconds=0.05):
    def change(flows, _):
        for flow in touching(flows, rank):
            flow.rtt += seconds
            flow.least += seconds
            flow.busy = 0.7
            flow.data /= 3 if flow.data > 1000 else 1

    return change


def throttle(rank, ranks=4):
    def change(flows, _):
        for flow in flows.values():
            flow.data /= 8 if flow.data > 1000 else 3
        for flow in touching(flows, rank):
            flow.rtt, flow.least = 0.05, 0.002
        out = flows[rank, (rank + 1) % ranks]
        out.busy, out.queue = 0.95, 6e5

    return change


def shared_queue(rank):
    """Each flow's minimum is as its mean, as on a longer path, but each finds another part of the queue."""

    def change(flows, _):
        for (source, to), flow in flows.items():
            if rank in (source, to):
                flow.rtt = flow.least = 0.035 if (to - source) % 4 == 1 else 0.055

    return change


def hidden_throttle(rank):
    """BBR: no queue in the RTT."""

    def change(flows, _):
        for flow in flows.values():
            flow.data /= 8 if flow.data > 1000 else 1
        out = flows[rank, (rank + 1) % 4]
        out.busy, out.queue = 0.95, 6e5

    return change


def loss(*pairs, share=0.05):
    def change(flows, _):
        for pair in pairs:
            flows[pair].retransmits = flows[pair].data * share

    return change


def slow_link(a, b):
    def change(flows, _):
        for ends in ((a, b), (b, a)):
            flows[ends].rtt, flows[ends].least = 0.05, 0.04

    return change


def stall(source, to, interval_s=1, in_vain=True):
    """Everything stops; retransmits come at ever longer intervals."""

    def change(flows, step):
        for flow in flows.values():
            flow.data = flow.samples = 0
            flow.busy = 0
        flows[source, to].queue = 9e5
        first = change.first = step if change.first is None else change.first
        if in_vain and (step - first) in (0, 1, 2, 4, 8, 16):
            flows[source, to].retransmits = 1 / interval_s

    change.first = None
    return change


def all_slow(flows, _):
    for flow in flows.values():
        flow.rtt, flow.least = 0.06, 0.055


def all_lose(flows, _):
    for flow in flows.values():
        flow.retransmits = flow.data * 0.05


def straggler(flows, _):
    for flow in flows.values():
        flow.data /= 3
        flow.samples /= 3


def steps_of_large_rtt(flows, _):
    """Request and reply with time to think: one segment a message, each a sample."""
    for (source, _), flow in flows.items():
        if source == 0:
            flow.data = flow.samples = 100.0
            flow.rtt = flow.least = 0.03
            flow.busy = 0.99


def silence(flows, _):
    for flow in flows.values():
        flow.data = flow.samples = flow.busy = 0


def idle_in_between(change):
    """Steps 8 to 20 of the fault carry no data at all."""

    def both(flows, step):
        first = both.first = step if both.first is None else both.first
        if 8 <= step - first < 20:
            silence(flows, step)
        else:
            change(flows, step)

    both.first = None
    return both


def named(alert, ranks=None, cause=None, job="train", **more):
    wanted = {"alertname": alert, "job": job, **more}
    if ranks is not None:
        wanted["ranks"] = ranks
    if cause is not None:
        wanted["cause"] = cause
    return wanted


class Case:
    """A job, its fault, and what fires while it lasts. `always` fires in the quiet, too."""

    def __init__(self, job=None, fault=None, fires=(), always=(), jobs=(), series=None, may=(), windows=10, patience=3):
        self.jobs = list(jobs) or [(job or Job(), fault)]
        self.fires = list(fires)
        self.always = list(always)
        self.may = list(may)  # may fire, at any time
        self.more = series  # (steps, begin, end) -> series that replace the jobs'
        self.windows = windows
        self.patience = patience  # evaluations beyond a window


def restarting(rank, at):
    job = Job()
    job.restarted[rank] = at
    return job


def agent_restarting(node, at):
    job = Job()
    job.agent_restarted[node] = at
    return job


def uploading():
    job = Job()
    flow = Flow(True)
    flow.rtt = flow.least = 0.2
    flow.busy, flow.queue, flow.retransmits = 1.0, 9e5, 500.0
    job.outside = (0, flow)
    return job


def sharing_address():
    job = Job()
    job.extra_addresses = {rank: ["172.17.0.1"] for rank in range(4)}  # every node's docker0
    return job


def forging(uid, rank="2", address="10.0.1.12"):
    """A process on node 2, in a network namespace of its own, that claims a rank and its address for ever, and traffic
    to ranks 1 and 3 as slow as it likes."""

    def make(steps, _begin, _end):
        labels = f'instance="n2:9100",job="train",rank="{rank}",pid="9"'
        series = {
            f'kitty_process_info{{{labels},role="rank",uid="{uid}",netns="99",start_time_ticks="7"}}': ["1"] * steps,
            f'kitty_process_address_info{{{labels},address="{address}"}}': ["1"] * steps,
        }
        flow = Flow(True)
        flow.rtt, flow.least, flow.busy, flow.queue = 0.054, 0.002, 0.97, 7e5
        for peer in ("10.0.1.11", "10.0.1.13"):
            more = f'{labels},peer="{peer}"'
            for name, field in COUNTERS.items():
                series[f"{name}{{{more}}}"] = [f"{getattr(flow, field) * step:.9g}" for step in range(steps)]
            series[f"kitty_peer_rtt_min_seconds{{{more}}}"] = [str(flow.least)] * steps
            series[f"kitty_peer_tx_queue_bytes{{{more}}}"] = [str(flow.queue)] * steps
        return series

    return make


def during(name, inside, outside):
    """One series that has another value during the fault."""

    def make(steps, begin, end):
        return {name: [str(inside if begin <= step < end else outside) for step in range(steps)]}

    return make


N1 = 'instance="n1:9100",job="kitty"'
BLIND = {"alertname": "KittyBlind"}


def cases(interval_s, window_steps):
    """The table. Steps of the restarts are within the fault."""
    amid = 8 * window_steps
    not_all_seen = "not all ranks of WORLD_SIZE are seen"
    contested = "a rank is claimed by processes in several network namespaces and not judged"
    no_data = named("KittyBlind", reason="no TCP data between ranks is seen: RDMA, or idle")
    hook_of = lambda hook: f'kitty_rtt_hook_info{{{N1},hook="{hook}"}}'
    return {
        "quiet": Case(),
        "compute straggler": Case(fault=straggler),
        "long path": Case(fault=long_path(2), fires=[named("KittyLatency", "2", "latency", unit="n2:9100")]),
        "long path of rank 0": Case(fault=long_path(0), fires=[named("KittyLatency", "0")]),
        "throttle": Case(fault=throttle(2), fires=[named("KittyThrottle", "2", "throttle")]),
        "throttle whose minima are as its means": Case(
            fault=shared_queue(2), fires=[named("KittyThrottle", "2", "throttle")]
        ),
        "throttle that RTT does not show": Case(
            fault=hidden_throttle(1), fires=[named("KittyThrottle", "1", "throttle")]
        ),
        "one node": Case(Job(one_node=True), throttle(2), [named("KittyThrottle", "2", unit="n0:9100 netns 4002")]),
        "three ranks": Case(Job(ranks=3), throttle(2, 3), [named("KittyThrottle", "2")]),
        "sixteen ranks, two slow": Case(
            Job(ranks=16),
            lambda flows, step: (long_path(2)(flows, step), long_path(9)(flows, step)),
            [named("KittyLatency", "2"), named("KittyLatency", "9")],
        ),
        "two ranks": Case(Job(ranks=2), long_path(1)),
        "two ranks a node": Case(
            Job(ranks=8, per_node=2),
            lambda flows, step: (long_path(4)(flows, step), long_path(5)(flows, step)),
            [named("KittyLatency", "4,5", unit="n2:9100")],
        ),
        "loss": Case(fault=loss((2, 3), (2, 1)), fires=[named("KittyLoss", "2", "loss")]),
        "a handful of retransmits of a small flow": Case(fault=loss((2, 1), share=0.02)),
        "loss on one link": Case(
            Job(ranks=4),
            lambda flows, step: ([setattr(flow, "data", 5000.0) for flow in flows.values()], loss((2, 3))(flows, step)),
            [named("KittySlowLink", "[2 - 3]", "loss")],
        ),
        "slow link": Case(fault=slow_link(1, 2), fires=[named("KittySlowLink", "[1 - 2]", "latency")]),
        "stall": Case(fault=stall(2, 3, interval_s), fires=[named("KittyStall", "2", "stalled")]),
        "a receiver that does not read": Case(
            fault=stall(2, 3, in_vain=False), fires=[named("KittySlowLink", "[2 - 3]", "stalled")]
        ),
        "everybody slow": Case(fault=all_slow, fires=[named("KittyJobWide", cause="latency")]),
        "everybody loses": Case(fault=all_lose, fires=[named("KittyJobWide", cause="loss")]),
        "request and reply": Case(fault=steps_of_large_rtt),
        "upload to storage": Case(uploading()),
        "an address that all nodes have": Case(sharing_address(), throttle(2), [named("KittyThrottle", "2")]),
        "nothing sent for a while": Case(
            fault=idle_in_between(throttle(2)), fires=[named("KittyThrottle", "2")], may=[BLIND]
        ),
        "two jobs with the same ranks": Case(
            jobs=[(Job("a", subnet=1), throttle(2)), (Job("b", subnet=2), None)],
            fires=[named("KittyThrottle", "2", job="a")],
        ),
        "two jobs with a fault each": Case(
            jobs=[(Job("a", subnet=1), throttle(2)), (Job("b", subnet=2), slow_link(0, 1))],
            fires=[named("KittyThrottle", "2", job="a"), named("KittySlowLink", "[0 - 1]", job="b")],
        ),
        "a forged rank of another user": Case(series=forging("1001")),
        "a fault beside a forged rank of another user": Case(
            fault=throttle(1), series=forging("1001"), fires=[named("KittyThrottle", "1", uid="1000")]
        ),
        "a rank claimed twice": Case(
            series=forging("1000"),
            always=[named("KittyBlind", reason=contested), named("KittyBlind", reason=not_all_seen)],
        ),
        "agents that do not say whose a process is": Case(
            Job(uid=""), throttle(2), [named("KittyThrottle", "2", "throttle")]
        ),
        "a hostile job name": Case(
            Job(r"\"}) or vector(1) #{{ printf }}\\"),
            slow_link(1, 2),
            [named("KittySlowLink", "[1 - 2]", job=r"\"}) or vector(1) #{{ printf }}\\")],
        ),
        "a process restarts": Case(restarting(2, amid)),
        "the agent restarts": Case(agent_restarting(2, amid)),
        "the slow rank restarts": Case(restarting(2, amid), throttle(2), [named("KittyThrottle", "2")]),
        "another rank restarts": Case(restarting(0, amid), throttle(2), [named("KittyThrottle", "2")]),
        "the slow rank's agent restarts": Case(agent_restarting(2, amid), throttle(2), [named("KittyThrottle", "2")]),
        "no WORLD_SIZE": Case(Job(world_size="")),
        "a rank is missing": Case(
            Job(world_size="5"), always=[named("KittyBlind", reason=not_all_seen, world_size="5")]
        ),
        "no data": Case(fault=silence, fires=[no_data], patience=6),
        "agent down": Case(
            series=during(f"up{{{N1}}}", 0, 1),
            fires=[named("KittyAgentDown", job="kitty", instance="n1:9100")],
            patience=6,
        ),
        "processes are not listed": Case(
            series=during(f'kitty_collector_success{{{N1},collector="processes"}}', 0, 1),
            fires=[{"alertname": "KittyStale", "instance": "n1:9100"}],
            patience=6,
        ),
        "no RTT hook": Case(
            series=lambda *when: {
                hook_of("fentry/tcp_ack_update_rtt"): ["_"] * when[0],
                **during(hook_of("none"), 1, 0)(*when),
            },
            fires=[{"alertname": "KittyNoRttHook", "instance": "n1:9100"}],
            patience=6,
        ),
        "unreadable processes": Case(
            series=during(f'kitty_unreadable_processes{{{N1},reason="other"}}', 3, 0),
            fires=[{"alertname": "KittyBlind", "instance": "n1:9100", "reason": "processes cannot be read"}],
            patience=6,
        ),
        "a user has more than a fair share": Case(
            series=during(f'kitty_dropped_by_uid{{{N1},uid="65533",what="sockets"}}', 608, 0),
            fires=[{"alertname": "KittyBlind", "instance": "n1:9100", "uid": "65533"}],
            patience=6,
        ),
        "sockets dropped": Case(
            series=during(f"kitty_sockets_dropped{{{N1}}}", 3, 0),
            fires=[{"alertname": "KittyBlind", "instance": "n1:9100"}],
            patience=6,
        ),
    }


def is_like(labels, wanted):
    return all(labels.get(name) == value for name, value in wanted.items())


def relabelled(text, job_label):
    """A series as scrape-relabelled.yml stores it; the agent's own keep the scrape's job."""
    if 'job="kitty"' in text:
        return text
    return re.sub(r"([{,])job=", lambda at: f'{at[1]}job="kitty",{job_label}=', text)


def run_case(name, case, rules, window_s, interval_s, job_label, folder):
    """What went wrong, as texts."""
    window = round(window_s / interval_s)
    begin = 3 * window
    end = begin + case.windows * window
    steps = end + 6 * window
    series = {}
    for job, fault in case.jobs:
        series.update(job.series(steps, interval_s, fault, begin, end))
    if case.more:
        series.update(case.more(steps, begin, end))
    if job_label != "job":
        series = {relabelled(text, job_label): values for text, values in series.items()}
    last = replay_duration((end - 1) * interval_s)
    nothing = [{"labels": "nothing", "value": 0}]
    test = {
        "rule_files": [rules],
        "evaluation_interval": replay_duration(interval_s),
        "tests": [
            {
                "interval": replay_duration(interval_s),
                "input_series": [
                    {"series": text, "values": replay.values_text(values)} for text, values in series.items()
                ],
                # What nobody expects is printed as it is, with its annotations.
                "alert_rule_test": [
                    {"alertname": one["alertname"], "eval_time": last, "exp_alerts": []} for one in case.fires
                ],
                "promql_expr_test": [
                    {"expr": FIRING, "eval_time": replay_duration(step * interval_s), "exp_samples": nothing}
                    for step in range(steps)
                ],
            }
        ],
    }
    _, text = replay.run_promtool(test, folder)
    errors = [line.strip() for line in text.splitlines() if "err:" in line or "parse" in line]
    if errors or "FAILED" not in text:
        return errors[:3] or [f"promtool: {text[:500]}"]
    found = replay.parse_got(text)
    problems = []
    summaries = re.findall(r'Annotations:\{summary="((?:[^"\\]|\\.)*)"\}', text)
    for one in summaries:
        if re.search(r"<error|<no value|%!|\{\{ [^p]|NaN|: rank  ", one):  # {{ printf }} is the hostile job's name
            problems.append(f"annotation: {one}")
    if len(summaries) < len({one["alertname"] for one in case.fires}):
        problems.append("an alert has no annotation")
    if SHOW:
        print("\n".join(f"    {one}" for one in sorted(set(summaries))))
    patience = window + case.patience
    for step in range(steps):
        firing = found.get((FIRING, step * interval_s), [])
        firing = [{**one, "job": one.get(job_label, one.get("job"))} for one in firing]
        at = f"step {step} (fault {begin} to {end})"
        wanted = list(case.always) if step >= 6 else []
        if begin + patience <= step < end:
            wanted += case.fires
        allowed = case.always + case.may
        if begin <= step < end + patience:
            allowed = allowed + case.fires
        # A window that holds a part of the fault may take its cause for another.
        if begin <= step < begin + patience or end <= step < end + patience:
            allowed = allowed + [{"ranks": one["ranks"], "severity": "warning"} for one in case.fires if "ranks" in one]
        for one in wanted:
            if not any(is_like(labels, one) for labels in firing):
                problems.append(f"{at}: not firing: {one}")
        for labels in firing:
            if not any(is_like(labels, one) for one in allowed):
                problems.append(f"{at}: fires: { {n: v for n, v in labels.items() if n not in ('__name__', 'value')} }")
    return problems


def replay_duration(seconds):
    return f"{seconds:g}s"


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
    return [] if done.returncode == 0 else [done.stdout + done.stderr]


def check_committed(thresholds, folder):
    problems = []
    made = os.path.join(folder, "kitty-rules.yml")
    replay.make_rules(made, "1m", "15s", thresholds)
    with open(made) as a, open(os.path.join(DEPLOY, "kitty-rules.yml")) as b:
        if a.read() != b.read():
            problems.append("deploy/prometheus/kitty-rules.yml is not what rules.py --window 1m makes")
    replay.make_rules(os.path.join(folder, "kitty-rules-relabelled.yml"), "1m", "15s", thresholds, "train_job")
    for name in ("scrape.yml", "scrape-relabelled.yml"):
        shutil.copy(os.path.join(DEPLOY, name), folder)
        problems += promtool("check", "config", os.path.join(folder, name))
    for arguments in (["--window", "2s", "--interval", "1s"], ["--window", "1 minute"], []):
        done = subprocess.run([sys.executable, "-IB", replay.RULES, *arguments], capture_output=True, text=True)
        if done.returncode == 0 or "Traceback" in done.stderr:
            problems.append(f"rules.py {arguments}: exit status {done.returncode}: {done.stderr[-200:]}")
    return problems


def expressions(node):
    """Every expr and query of a dashboard."""
    if isinstance(node, dict):
        if isinstance(node.get("expr"), str):
            yield node["expr"]
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def check_dashboard(rules_path, folder):
    """Its structure, that each expression parses, and that what it shows exists."""
    with open(DASHBOARD) as file:
        board = json.load(file)
    problems = []
    for field in ("title", "uid", "schemaVersion", "panels", "templating", "time"):
        if field not in board:
            problems.append(f"no {field}")
    names = [one["name"] for one in board["templating"]["list"]]
    if not {"datasource", "job", "rank"} <= set(names):
        problems.append(f"variables: {names}")
    ids = [panel["id"] for panel in board["panels"]]
    if len(set(ids)) != len(ids):
        problems.append("two panels with one id")
    area = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        if area & cells or place["x"] + place["w"] > 24:
            problems.append(f"panel {panel['title']} overlaps another, or the edge")
        area |= cells
        if panel["type"] != "row" and not panel.get("targets"):
            problems.append(f"panel {panel['title']} shows nothing")
    found = list(expressions(board["panels"]))
    for one in board["templating"]["list"]:
        found += re.findall(r"label_values\((.*), \w+\)", one["query"])
    plain = []
    for expression in found:
        text = expression.replace("$__rate_interval", "1m").replace("$__interval", "1m").replace("$__range", "1h")
        plain.append(re.sub(r"\$\{?\w+(?::\w+)?\}?", "x", text))
    path = os.path.join(folder, "dashboard.yml")
    with open(path, "w") as file:
        rules = [{"record": f"panel:{at}", "expr": expression} for at, expression in enumerate(plain)]
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
    problems += promtool("check", "rules", path)
    with open(rules_path) as file:
        recorded = set(re.findall(r"record: (\S+)", file.read()))
    used = set(re.findall(r"\bkitty:[a-z_:]+", " ".join(plain)))
    if used - recorded:
        problems.append(f"not recorded: {sorted(used - recorded)}")
    with open(os.path.join(TOP, "tests", "golden", "metrics.txt")) as file:
        exported = set(re.findall(r"^(\w+)[{ ]", file.read(), re.MULTILINE))
    used = set(re.findall(r"\b(?:kitty|net)_[a-z_]+\b", " ".join(plain)))
    if used - exported:
        problems.append(f"not exported: {sorted(used - exported)}")
    return problems


SHOW = False


def main():
    global SHOW
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("kitty", nargs="?")
    parser.add_argument("--thresholds", default=THRESHOLDS)
    parser.add_argument("--cases")
    parser.add_argument("--recordings", nargs="*")
    parser.add_argument("--quick", action="store_true", help="the committed files and a few cases")
    parser.add_argument("--show", action="store_true", help="print what a person on call reads")
    given = parser.parse_args()
    SHOW = given.show
    if not shutil.which("promtool"):
        print("SKIP: promtool not found")
        return 77
    failed = []

    def report(name, problems, limit=6):
        print(("FAIL " if problems else "PASS ") + name, flush=True)
        for problem in problems[:limit]:
            print(f"    {problem}")
        if len(problems) > limit:
            print(f"    and {len(problems) - limit} more")
        if problems:
            failed.append(name)

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kitty-rules-"))
        wanted = given.cases.split(",") if given.cases else None
        if not wanted:
            report("committed files", check_committed(given.thresholds, folder))
            report("dashboard", check_dashboard(os.path.join(folder, "kitty-rules.yml"), folder))
        for window, interval, job_label in (("1m", "15s", "job"), ("3s", "1s", "job"), ("1m", "15s", "train_job")):
            rules = os.path.join(folder, f"rules-{window}-{job_label}.yml")
            replay.make_rules(rules, window, interval, given.thresholds, job_label)
            window_s, interval_s = replay.duration_s(window), replay.duration_s(interval)
            # The label's name makes a difference to few.
            table = {
                name: case
                for name, case in cases(interval_s, round(window_s / interval_s)).items()
                if (not wanted or name in wanted)
                and (job_label == "job" and not given.quick or name in ("quiet", "throttle", "slow link"))
            }

            def run(at, rules=rules, window_s=window_s, interval_s=interval_s, job_label=job_label, table=table):
                name, case = at
                with tempfile.TemporaryDirectory(dir=folder) as own:
                    return run_case(name, case, rules, window_s, interval_s, job_label, own)

            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                for name, problems in zip(table, pool.map(run, table.items())):
                    report(f"{name}, window {window}" + (f", {job_label}" if job_label != "job" else ""), problems)
        if not wanted and not given.quick:
            recordings = given.recordings
            if recordings is None:
                recordings = [os.path.join(RECORDED, one) for one in sorted(os.listdir(RECORDED))]
            done = subprocess.run(
                [sys.executable, "-IB", os.path.join(HERE, "replay.py"), given.kitty or "-", *recordings]
                + ["--thresholds", given.thresholds]
            )
            if done.returncode:
                failed.append("recordings")
    print(f"{len(failed)} failed" + (": " + "; ".join(failed) if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
