"""The jobs and faults that the verdict is tested on, and whom it must name for each."""

import collections
import contextlib

# What may be said of a throttle at a node's entrance: it delays what comes in, and the queue is in its senders.
THROTTLE, INGRESS = ("throttle",), ("throttle", "latency")

FIELDS = {
    "ranks": (),  # who must be named; () for nobody
    "causes": (),  # any of them is right
    "fault": None,  # fault(cluster, folder): a context manager; None for none
    "start": lambda cluster, folder: cluster.start_training(folder),
    "nodes": 4,
    "congestion": "cubic",
    "direct": (),  # two nodes that are joined directly
    "needs": ("torch",),
    "quiet_s": 10,
    "fault_s": 14,
    "after_s": 12,
    "late_agent": False,  # the agent starts in the middle of the fault
    "tier": "long",  # quick: in make test; slow: in make test-slow; long: in make test-long
}
Case = collections.namedtuple("Case", ["name", *FIELDS], defaults=FIELDS.values())


def egress(node, rate, burst="32kbit"):
    return lambda cluster, folder: cluster.egress(cluster.nodes[node], rate, burst)


def with_storage(cluster, folder):
    cluster.start_training(folder, storage=cluster.nodes[-1])


TWO_PER_NODE = {"start": lambda cluster, folder: cluster.start_training(folder, ranks_per_node=2), "nodes": 3}

CASES = (
    Case("quiet_short", quiet_s=15, after_s=0, fault_s=0, tier="quick"),
    Case("egress_20", (2,), THROTTLE, egress(2, "20mbit"), tier="quick"),
    Case("quiet", quiet_s=60, after_s=0, fault_s=0, tier="slow"),
    Case("egress_100", (2,), THROTTLE, egress(2, "100mbit")),
    Case("ingress_20", (2,), INGRESS, lambda cluster, folder: cluster.ingress(cluster.nodes[2], "20mbit")),
    Case("loss_5", (2,), ("loss",), lambda cluster, folder: cluster.loss_from(cluster.nodes[2], 5)),
    Case("bbr_20", (2,), THROTTLE, egress(2, "20mbit"), congestion="bbr"),
    Case("delay_50", (2,), ("latency",), lambda cluster, folder: cluster.delay(cluster.nodes[2], 25)),
    Case("straggler", fault=lambda cluster, folder: cluster.slow_computing(folder, 2), fault_s=60),
    Case("three_ranks", (2,), THROTTLE, egress(2, "20mbit"), nodes=3),
    # A burst below a frame: no data leaves, only what is as small as an acknowledgement.
    Case("stall", (2,), ("stalled",), egress(2, "20mbit", burst="1000b")),
    Case("rank_0", (0,), THROTTLE, egress(0, "20mbit")),  # the one that all others' rendezvous connections lead to
    Case("late_agent", (2,), THROTTLE, egress(2, "20mbit"), late_agent=True),
    Case(
        "checkpoint",
        fault=lambda cluster, folder: cluster.checkpoint(folder, cluster.nodes[-1], "20mbit"),
        start=with_storage,
        nodes=5,
        fault_s=20,
    ),
    Case("requests", start=lambda cluster, folder: cluster.start_requests(folder), needs=(), quiet_s=30, fault_s=0),
    Case("two_per_node", (2, 3), THROTTLE, egress(1, "20mbit"), **TWO_PER_NODE),
    Case("two_per_node_quiet", quiet_s=30, fault_s=0, after_s=0, **TWO_PER_NODE),
    Case(
        "mpi_100",
        (2,),
        THROTTLE,
        egress(2, "100mbit"),
        lambda cluster, folder: cluster.start_mpi(folder),
        needs=("mpi",),
    ),
    Case(
        "link",
        (1, 2),
        ("link",),
        lambda cluster, folder: cluster.slow_link(cluster.nodes[1], cluster.nodes[2], "20mbit"),
        direct=(1, 2),
    ),
    Case("two_ranks", (), ("too few ranks",), egress(1, "20mbit"), nodes=2),
)


def prepare(case, cluster):
    for _ in range(case.nodes):
        cluster.add_node(case.congestion)
    if case.direct:
        left, right = case.direct
        cluster.join_directly(cluster.nodes[left], cluster.nodes[right])


def fault_of(case, cluster, folder):
    return case.fault(cluster, folder) if case.fault else contextlib.nullcontext()
