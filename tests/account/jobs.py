"""The jobs whose accounts are compared, and what is done to them.

A rank is the one process of a node. Expected: shares that follow from how a job is built, so that a witness that misses
them is wrong itself.
"""

import collections
import contextlib
import os
import shutil
import signal
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "training"))
from cluster import Cluster, require_mpi, require_torch, tbf  # noqa: E402
from lab import TRAFFIC, Fault, Missing, run  # noqa: E402

STORE_PORT, STORAGE_PORT = 7200, 443
STORE_BYTES = 50
STOPPED_S, RUNNING_S = 0.35, 0.15


class Job(Cluster):
    """A cluster with one job, whose ranks' processes it knows."""

    def __init__(self, name, nodes, ipv6):
        super().__init__(name)
        self.world = nodes
        self.ipv6 = ipv6
        self.ranks = []  # processes

    def __enter__(self):
        super().__enter__()
        for number in range(self.world):
            node = self.add_node()
            if self.ipv6:
                address = f"fd77::{11 + number}"
                run("ip", "-n", node.namespace, "addr", "add", f"{address}/64", "dev", "eth0", "nodad")
                node.address = address
        return self

    def start_pattern(self, folder, pattern, length, compute, *more):
        program = (sys.executable, "-IS", os.path.join(HERE, "pattern.py"), folder, pattern)
        peers = ",".join(node.address for node in self.nodes[: self.world])
        for rank, node in enumerate(self.nodes[: self.world]):
            flags = ("--peers", peers, "--bytes", str(length), "--compute", str(compute), *more)
            self.ranks.append(self._start_rank(node, rank, self.world, folder, *program, *flags))
        self.wait_steps(folder, self.world)

    def start_ddp(self, folder):
        before = len(self.processes)
        self.start_training(folder)
        self.ranks = self.processes[before:]

    def beside(self, port, message_bytes):
        """A node that is no rank, and takes what comes to a port; returns its address."""
        node = self.add_node()
        self.start(node.namespace, *TRAFFIC, "echo", node.address, str(port), "--bytes", str(message_bytes))
        return node.address

    # What is done to it

    @contextlib.contextmanager
    def paused(self, rank):
        """Stopped and continued by turns, as by a CPU quota."""
        ended = threading.Event()

        def turn():
            while not ended.is_set():
                for number, seconds in ((signal.SIGSTOP, STOPPED_S), (signal.SIGCONT, RUNNING_S)):
                    self.ranks[rank].send_signal(number)
                    ended.wait(seconds)
            self.ranks[rank].send_signal(signal.SIGCONT)

        thread = threading.Thread(target=turn)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextlib.contextmanager
    def halted(self, rank):
        self.ranks[rank].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.ranks[rank].send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def lossy(self, rank, percent):
        """So many percent of what a rank sends is lost at the bridge, behind its own capture and before its peers'."""
        if not shutil.which("nft"):
            raise Missing("nft (package nftables)")
        nft = ("ip", "netns", "exec", self.hub, "nft")
        rule = f"meta l4proto tcp numgen random mod 100 < {percent} drop"
        hook = f"type filter hook ingress device {self.nodes[rank].port} priority 0"
        run(*nft, f"table netdev loss {{ chain in {{ {hook}; {rule}; }}; }}")
        try:
            yield
        finally:
            run(*nft, "delete table netdev loss")


FIELDS = {
    "start": None,  # start(job, folder)
    "fault": lambda job, folder: contextlib.nullcontext(),  # a context manager
    "expected": {},  # {(rank, share, peer): least percent}
    "nodes": 4,
    "ipv6": False,
    "needs": (),
    "tier": "slow",  # quick: in a few minutes with the others of it
}
Case = collections.namedtuple("Case", ["name", *FIELDS], defaults=FIELDS.values())


def pattern(name, length=8 << 20, compute=0.05, *more):
    return lambda job, folder: job.start_pattern(folder, name, length, compute, *more)


def with_store(job, folder):
    store = job.beside(STORE_PORT, STORE_BYTES)
    job.start_pattern(folder, "one_way_ring", 8 << 20, 0.05, "--store", store, str(STORE_PORT))


def with_storage(job, folder):
    storage = job.beside(STORAGE_PORT, 1 << 40)
    job.start_pattern(folder, "one_way_ring", 8 << 20, 0.05, "--storage", storage, str(STORAGE_PORT))


def ddp(job, folder):
    job.start_ddp(folder)


def late(rank):
    return lambda job, folder: job.slow_computing(folder, rank)


def paused(rank):
    return lambda job, folder: job.paused(rank)


def halted(rank):
    return lambda job, folder: job.halted(rank)


def egress(rank, rate):
    return lambda job, folder: Fault(job.nodes[rank].namespace, *tbf(rate))


def ingress(rank, rate):
    return lambda job, folder: Fault(job.hub, *tbf(rate), device=job.nodes[rank].port)


def lossy(rank, percent):
    return lambda job, folder: job.lossy(rank, percent)


def delayed(rank, milliseconds):
    return lambda job, folder: job.delay(job.nodes[rank], milliseconds)


DDP = {"start": ddp, "needs": (require_torch,)}

CASES = (
    Case("one_way_ring", pattern("one_way_ring")),
    Case(
        "one_way_ring_late",
        pattern("one_way_ring"),
        late(3),
        {(3, "owing", None): 70, (0, "waiting", 3): 60, (1, "waiting", 0): 40},
        tier="quick",
    ),
    Case("ring_paused", pattern("ring"), paused(2), {(2, "owing", None): 50}),
    Case("ring_halted", pattern("ring"), halted(2), {(2, "open", None): 50}),
    Case("ring_late_ipv6", pattern("ring"), late(1), {(1, "owing", None): 70}, ipv6=True, tier="quick"),
    Case("ring_two_sockets_late", pattern("ring", 8 << 20, 0.05, "--sockets", "2"), late(1), {(1, "owing", None): 70}),
    Case(
        "ring_two_sockets_throttled",
        pattern("ring", 2 << 20, 0.05, "--sockets", "2"),
        egress(1, "100mbit"),
    ),
    Case("pipeline", pattern("pipeline")),
    Case(
        "pipeline_throttled",
        pattern("pipeline", 2 << 20),
        egress(1, "100mbit"),
        {(1, "path", 2): 15, (1, "path", 0): 15},
        tier="quick",
    ),
    Case("pipeline_throttled_entrance", pattern("pipeline", 2 << 20), ingress(2, "100mbit"), {(1, "path", 2): 15}),
    Case("one_way_pipeline", pattern("one_way_pipeline")),
    Case("one_way_pipeline_late", pattern("one_way_pipeline"), late(2), {(2, "owing", None): 60}),
    Case("star", pattern("star", 4 << 20)),
    Case("star_late", pattern("star", 4 << 20), late(0), {(0, "owing", None): 60}),
    Case("star_throttled", pattern("star", 1 << 20), egress(0, "100mbit")),
    Case("all_to_all", pattern("all_to_all", 4 << 20)),
    Case("all_to_all_late", pattern("all_to_all", 4 << 20), late(3), {(3, "owing", None): 70}),
    Case("messages", pattern("messages", 1000, 0.002), tier="quick"),
    Case("messages_delayed", pattern("messages", 1000, 0.002), delayed(2, 12)),
    Case("store_late", with_store, late(3), {(3, "owing", None): 70}),
    Case("storage_late", with_storage, late(3), {(3, "owing", None): 70}, tier="quick"),
    Case("ddp", **DDP),
    Case("ddp_late", fault=late(3), expected={(3, "owing", None): 40}, tier="quick", **DDP),
    Case("ddp_paused", fault=paused(1), expected={(1, "owing", None): 20}, **DDP),
    Case("ddp_throttled", fault=egress(2, "50mbit"), **DDP),
    Case("ddp_lossy", fault=lossy(2, 3), **DDP),
    Case("ddp_delayed", fault=delayed(2, 12), **DDP),
    Case("mpi", lambda job, folder: job.start_mpi(folder), needs=(require_mpi,)),
)
