"""Nodes for real jobs: network namespaces on one bridge, the jobs that run on them, and faults as context managers.

Not thread-safe. `with Cluster() as cluster:` leaves neither processes nor namespaces behind. Needs root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import TRAFFIC, Failure, Fault, Lab, Missing, run  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch is for
MASTER_PORT = 29500
STORAGE_PORT = 9000
REQUESTS_PORT = 7000
FIRST_STEPS_S = 120  # importing torch six times on a busy machine


class Node:
    def __init__(self, namespace, address, port):
        self.namespace = namespace
        self.address = address
        self.port = port  # the bridge's port that leads to it: a device in the hub


class Cluster(Lab):
    """Nodes 10.77.0.11, .12, ... on a bridge in a namespace of its own, the hub, which is 10.77.0.1."""

    def __init__(self, job):
        super().__init__()
        self.job = job
        self.nodes = []
        self.hub = None

    def __exit__(self, *exception):
        # mpirun's daemons are not our children; a namespace of ours holds nobody else's processes.
        try:
            for namespace in self.namespaces:
                for pid in run("ip", "netns", "pids", namespace).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
        finally:
            super().__exit__(*exception)

    def add_node(self, congestion="cubic"):
        """`congestion`: its TCP's congestion control, set by its route: a namespace's sysctl takes only init's."""
        if not self.hub:
            self.hub = self.namespace("hub")
            run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", self.hub, "addr", "add", "10.77.0.1/24", "dev", "br0")
            run("ip", "-n", self.hub, "link", "set", "br0", "up")
        number = len(self.nodes)
        node = Node(self.namespace(f"n{number}"), f"10.77.0.{11 + number}", f"port{number}")
        veth = ["link", "add", "eth0", "type", "veth", "peer", "name", node.port, "netns", self.hub]
        run("ip", "-n", node.namespace, *veth)
        run("ip", "-n", self.hub, "link", "set", node.port, "master", "br0", "up")
        run("ip", "-n", node.namespace, "addr", "add", f"{node.address}/24", "dev", "eth0")
        run("ip", "-n", node.namespace, "link", "set", "eth0", "up")
        route = ["10.77.0.0/24", "dev", "eth0", "src", node.address, "congctl", congestion]
        run("ip", "-n", node.namespace, "route", "replace", *route)
        self.nodes.append(node)
        return node

    def join_directly(self, left, right):
        """A link of their own between two nodes, called direct at both ends, that carries what they send each other."""
        direct = ["link", "add", "direct", "type", "veth", "peer", "name", "direct", "netns", right.namespace]
        run("ip", "-n", left.namespace, *direct)
        for node, other in ((left, right), (right, left)):
            run("ip", "-n", node.namespace, "link", "set", "direct", "up")
            route = [f"{other.address}/32", "dev", "direct", "src", node.address, "congctl", "cubic"]
            run("ip", "-n", node.namespace, "route", "add", *route)

    # Jobs. Each rank writes FOLDER/steps-RANK and FOLDER/log-RANK.

    def _start_rank(self, node, rank, world_size, folder, *command, **environment):
        return self.start(
            node.namespace,
            *command,
            output=os.path.join(folder, f"log-{rank}"),
            KITTY_WATCH="1",
            JOB_NAME=self.job,
            RANK=str(rank),
            WORLD_SIZE=str(world_size),
            **environment,
        )

    def start_training(self, folder, ranks_per_node=1, storage=None):
        """train.py on all nodes but `storage`, where rank 0 may put its checkpoints."""
        nodes = [node for node in self.nodes if node is not storage]
        upload = ["--upload", storage.address, str(STORAGE_PORT)] if storage else []
        for rank in range(len(nodes) * ranks_per_node):
            self._start_rank(
                nodes[rank // ranks_per_node],
                rank,
                len(nodes) * ranks_per_node,
                folder,
                PYTHON,
                os.path.join(HERE, "train.py"),
                folder,
                *upload,
                MASTER_ADDR=nodes[0].address,
                MASTER_PORT=str(MASTER_PORT),
                GLOO_SOCKET_IFNAME="eth0",
                OMP_NUM_THREADS="1",
                OPENBLAS_NUM_THREADS="1",
            )
        self.wait_steps(folder, len(nodes) * ranks_per_node)

    def start_requests(self, folder):
        """requests_job.py: the first node asks all others."""
        addresses = [node.address for node in self.nodes[1:]]
        for rank, node in enumerate(self.nodes):
            command = (sys.executable, "-IS", os.path.join(HERE, "requests_job.py"), folder, str(REQUESTS_PORT))
            self._start_rank(node, rank, len(self.nodes), folder, *command, *([] if rank else addresses))
        self.wait_steps(folder, len(self.nodes))

    def start_mpi(self, folder):
        """allreduce.c, one rank a node, started by mpirun in the hub through something like ssh."""
        program = os.path.join(folder, "allreduce")
        run("mpicc", "-O2", "-o", program, os.path.join(HERE, "allreduce.c"))
        shell = os.path.join(folder, "enter-node")
        with open(shell, "w") as script:
            script.write("#!/bin/sh\nhost=$1\nshift\ncase $host in\n")
            for node in self.nodes:
                script.write(f'{node.address}) exec ip netns exec {node.namespace} sh -c "$*" ;;\n')
            script.write("esac\n")
        os.chmod(shell, 0o755)
        settings = {
            "plm_rsh_agent": shell,
            "orte_leave_session_attached": "1",
            "btl": "tcp,self",
            "btl_tcp_if_include": "eth0",
            "oob_tcp_if_include": "10.77.0.0/24",
        }
        self.start(
            self.hub,
            "mpirun",
            "--allow-run-as-root",
            *(word for name, value in settings.items() for word in ("--mca", name, value)),
            *("-x", "KITTY_WATCH=1", "-x", f"JOB_NAME={self.job}"),
            *("--host", ",".join(node.address for node in self.nodes)),
            program,
            folder,
            output=os.path.join(folder, "log-mpirun"),
            HOME="/root",
        )
        self.wait_steps(folder, len(self.nodes))

    def wait_steps(self, folder, world_size):
        """Until every rank has made its first steps."""
        deadline = time.monotonic() + FIRST_STEPS_S
        while any(len(read_steps(folder, rank)) < 3 for rank in range(world_size)):
            dead = [process.args for process in self.processes if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith("log-")]
                said = "".join(f"{log}: {open(log).read()[-1000:]}\n" for log in logs)
                raise Failure(f"the job did not start; ended: {dead}\n{said}")
            time.sleep(0.2)

    # Faults.

    def egress(self, node, rate, burst="32kbit"):
        return Fault(node.namespace, *tbf(rate, burst))

    def ingress(self, node, rate):
        return Fault(self.hub, *tbf(rate), device=node.port)

    @contextlib.contextmanager
    def loss_from(self, sender, percent):
        """So many percent of what a node sends is lost on the way; dropped at the receivers, so no netem is needed."""
        if not shutil.which("nft"):
            raise Missing("nft (package nftables)")
        rule = f"ip saddr {sender.address} numgen random mod 100 < {percent} drop"
        table = f"table inet loss {{ chain in {{ type filter hook input priority 0; {rule}; }}; }}"
        with contextlib.ExitStack() as undo:
            for node in self.nodes:
                if node is not sender:
                    run("ip", "netns", "exec", node.namespace, "nft", table)
                    undo.callback(run, "ip", "netns", "exec", node.namespace, "nft", "delete table inet loss")
            yield

    @contextlib.contextmanager
    def slow_link(self, left, right, rate):
        """What two directly joined nodes send each other, both ways."""
        with Fault(left.namespace, *tbf(rate), device="direct"), Fault(right.namespace, *tbf(rate), device="direct"):
            yield

    @contextlib.contextmanager
    def delay(self, node, milliseconds):
        """A path that is longer both ways; by a relay between the node's port and the bridge, so no netem is needed."""
        hub = ("ip", "-n", self.hub, "link")
        run(*hub, "add", "relay", "type", "veth", "peer", "name", "relay-bridge")
        relay = None
        try:
            run(*hub, "set", "relay", "up")
            command = (sys.executable, "-IS", os.path.join(HERE, "delay.py"), node.port, "relay", str(milliseconds))
            with tempfile.NamedTemporaryFile() as said:
                relay = self.start(self.hub, *command, output=said.name)
                for _ in range(100):
                    if os.path.getsize(said.name):
                        break
                    time.sleep(0.05)
                else:
                    raise Failure("the relay did not start")
            run(*hub, "set", node.port, "nomaster")
            run(*hub, "set", "relay-bridge", "master", "br0", "up")
            yield
        finally:
            if relay:
                self.stop(relay)
            run(*hub, "set", node.port, "master", "br0")
            run(*hub, "del", "relay")

    @contextlib.contextmanager
    def slow_computing(self, folder, rank):
        with flag_file(os.path.join(folder, f"slow-{rank}")):
            yield

    @contextlib.contextmanager
    def checkpoint(self, folder, storage, rate):
        """Rank 0 uploads a checkpoint through a link that is slow beyond its own node."""
        self.start(storage.namespace, *TRAFFIC, "echo", storage.address, str(STORAGE_PORT), "--bytes", str(1 << 20))
        with self.ingress(storage, rate), flag_file(os.path.join(folder, "upload-0")):
            yield


def tbf(rate, burst="32kbit"):
    return ("tbf", "rate", rate, "burst", burst, "latency", "400ms")


@contextlib.contextmanager
def flag_file(path):
    open(path, "w").close()
    try:
        yield
    finally:
        os.unlink(path)


def read_steps(folder, rank):
    """[(end, seconds)] of the steps that a rank has made so far."""
    try:
        with open(os.path.join(folder, f"steps-{rank}")) as file:
            lines = file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [tuple(float(word) for word in line.split()) for line in lines]


def require_torch():
    if subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
        raise Missing("torch (packages python3-torch, libopenblas0-pthread)")


def require_mpi():
    for program, package in (("mpirun", "openmpi-bin"), ("mpicc", "libopenmpi-dev")):
        if not shutil.which(program):
            raise Missing(f"{program} (package {package})")
