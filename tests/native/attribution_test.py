#!/usr/bin/env python3
"""Whose traffic is whose, and who is who: shared and passed sockets, reused pids and ports, environments of all kinds.

    attribution_test.py KITTY [--cases fork,exec,...]

What the agent shows is compared with what the watched processes know of their own sockets (TCP_INFO). Needs root. Most
cases share one agent and run side by side. Exit status 0 when every case holds, 77 when none could run.
"""

import argparse
import concurrent.futures
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import Agent, Failure, Lab, Loss, Missing, Results, choose, expect, fetch, run, show  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watched_programs.py")
JOB = "attribution"
MESSAGE_BYTES = 20_000  # one data segment over lo, whose MTU is 65,536
INTERVAL_S = 0.005
NOTICED_S = 10  # a refresh of 5 s, a tick and the scrape, and seconds more for a busy machine
DEATH_NOTICED_S = 7  # about a second; never more than a refresh
SETTLED_S = 1.5  # what has been sent is in the text: two ticks and a half
# What a counter may lack at any moment, because the hook copies it once a millisecond and then at the next ACK.
SLACK_BYTES = MESSAGE_BYTES
SLACK_SEGMENTS = 4

BYTES, SEGMENTS = "kitty_tcp_bytes_sent_total", "kitty_tcp_segments_sent_total"
RETRANSMITS, SAMPLES = "kitty_tcp_retransmits_total", "kitty_tcp_rtt_seconds_count"
NAMESPACE_RETRANSMITS, NAMESPACE_SEGMENTS = "net_tcp_retransmits_total", "net_tcp_out_segs_total"
INFO = "kitty_process_info"
# A process's counter, its name among what a worker reports of its socket, and what it may lack of that.
COUNTERS = ((BYTES, "bytes", SLACK_BYTES), (SEGMENTS, "segments", SLACK_SEGMENTS), (RETRANSMITS, "retransmits", 0))
# The sums over peers that must equal the process's own figure.
SUMS_OVER_PEERS = {
    "kitty_peer_segments_sent_total": SEGMENTS,
    "kitty_peer_retransmits_total": RETRANSMITS,
    "kitty_peer_rtt_seconds_count": SAMPLES,
}


class Worker:
    """A watched process and the connection it is told things by."""

    def __init__(self, control, labels, process=None):
        self.control = control
        self.process = process
        self.number_inside = self._reply()["pid"]  # its pid as itself sees it
        # As this process sees it: SO_PEERCRED, struct ucred of linux/socket.h.
        self.pid = struct.unpack("=iII", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.pidfd = os.pidfd_open(self.pid)
        self.labels = {"pid": str(self.pid), **labels}

    def _reply(self, fd_count=0):
        try:
            message, fds, _, _ = socket.recv_fds(self.control, 65536, fd_count)
        except TimeoutError:
            raise Failure("a worker does not answer") from None
        if not message:
            raise Failure("a worker has ended by itself; what it said is above")
        return (json.loads(message), fds) if fd_count else json.loads(message)

    def tell(self, command, fds=(), **arguments):
        try:
            socket.send_fds(self.control, [json.dumps({"command": command, **arguments}).encode()], fds)
        except BrokenPipeError:
            raise Failure("a worker has ended by itself; what it said is above") from None

    def ask(self, command, fds=(), **arguments):
        self.tell(command, fds, **arguments)
        return self._reply()

    def pass_socket_to(self, other):
        self.tell("give")
        _, [fd] = self._reply(fd_count=1)
        other.ask("take", [fd])
        os.close(fd)

    def wait_ended(self):
        """Until it is gone, so that its pid is free where nobody is left to reap it."""
        if not select.select([self.pidfd], [], [], 10)[0]:
            raise Failure(f"pid {self.pid} did not end")
        if self.process:
            self.process.wait(10)


class Stage:
    """What one case uses beside the agent: namespaces and workers, all gone when it ends."""

    def __init__(self, agent, name):
        self.agent = agent
        self.name = name
        self.lab = Lab(f"kitty-{name.replace('_', '-')}")
        self.workers = []

    def __enter__(self):
        self.lab.__enter__()
        self.folder = tempfile.TemporaryDirectory()
        self.control_path = os.path.join(self.folder.name, "control")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.control_path)
        self.listener.listen()
        self.listener.settimeout(30)
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.control.close()  # which ends it
        self.lab.__exit__()
        for worker in self.workers:
            os.close(worker.pidfd)
        self.listener.close()
        self.folder.cleanup()

    def namespace(self, *echo_ports):
        """A network namespace whose lo has an echo on each of these ports."""
        namespace = self.lab.namespace(str(len(self.lab.namespaces)))
        for port in echo_ports:
            self.lab.start_echo(namespace, "127.0.0.1", port)
        for port in echo_ports:
            self._wait_listening(namespace, port)
        return namespace

    def _wait_listening(self, namespace, port):
        for _ in range(100):
            if subprocess.run(["ip", "netns", "exec", namespace, "ss", "-Hltn", f"sport = :{port}"],
                              capture_output=True, check=True).stdout:  # fmt: skip
                return
            time.sleep(0.1)
        raise Failure(f"no echo on port {port}")

    def accept(self, labels, process=None):
        try:
            control, _ = self.listener.accept()
        except TimeoutError:
            raise Failure("a worker did not start") from None
        control.settimeout(90)
        self.workers.append(Worker(control, labels, process))
        return self.workers[-1]

    def worker(self, namespace, rank, prefix=(), environment=None):
        """One started in a namespace, with RANK unless the environment is given whole."""
        if environment is None:
            environment = {"KITTY_WATCH": "1", "RANK": rank, "JOB_NAME": JOB}
        process = self.lab.start(namespace, *prefix, *self.command(), **environment)
        return self.accept({"rank": rank, "job": environment["JOB_NAME"]}, process)

    def command(self):
        return (sys.executable, "-IS", PROGRAM, "worker", self.control_path)

    def fork(self, parent):
        expected = parent.ask("fork")["child"]
        child = self.accept({"rank": parent.labels["rank"], "job": parent.labels["job"]})
        expect(child.pid == expected, f"expected the child {expected}, seen {child.pid}")
        time.sleep(0.05)  # siblings' start times, in clock ticks of 10 ms, tell which is the elder
        return child

    def exec(self, worker, rank, environment):
        """The same process as a new worker, after it has become a program with this environment."""
        worker.tell("exec", environment={"PATH": os.environ["PATH"], **environment})
        after = self.accept({"rank": rank, "job": JOB}, worker.process)
        expect(after.pid == worker.pid, f"expected pid {worker.pid} to stay, seen {after.pid}")
        return after

    # What the agent shows.

    def settled(self):
        """A scrape that holds all that has been sent before."""
        time.sleep(SETTLED_S)
        return self.agent.wait("a scrape", lambda scrape: True, 10)

    def wait_over(self, name, worker, least, limit_s=NOTICED_S):
        """The first scrape whose value is over `least`."""
        since = time.monotonic()
        try:
            return self.agent.wait(
                f"{name}{worker.labels} over {least:g}",
                lambda scrape: shown(scrape, name, worker) > least,
                limit_s,
                since,
            )
        except Failure as failure:
            seen = show(self.agent.series(name, since - 3, **worker.labels), since)
            raise Failure(f"{failure}; seen {seen}") from None

    def wait_shown(self, worker, limit_s=NOTICED_S, **more):
        labels = {**worker.labels, **more}
        return self.agent.wait(f"{INFO}{labels}", lambda scrape: scrape.find(INFO, **labels), limit_s)

    def highest(self, name, worker, since):
        return max((value for _, value in self.agent.series(name, since, **worker.labels)), default=0)


def shown(scrape, name, worker):
    """A series' value; 0 where there is none."""
    return scrape.value(name, **worker.labels) or 0


def expect_near(what, seen, truth, below, above=0):
    """`seen` may be so much below or above the truth."""
    expect(truth - below <= seen <= truth + above, f"expected {what} {truth:.0f} (-{below} +{above}), seen {seen:.0f}")


def expect_socket(what, seen, truth, key, below):
    """One socket's figure. Its peer's last byte may be acknowledged after the truth was told, by a segment more."""
    expect_near(what, seen, truth[key], below, above=1 if key == "segments" else 0)


def expect_own(scrape, worker, truth, which):
    """The one connection that a worker ever had: its counters are the socket's."""
    for name, key, slack in COUNTERS:
        expect_socket(f"{name} of {which}", shown(scrape, name, worker), truth, key, slack)


def truth_after_loss(worker):
    """A retransmitted segment's ACK is no RTT sample, so the agent may not have seen it: a few undisturbed messages."""
    worker.ask("pause")
    return worker.ask("count", messages=5, interval_s=INTERVAL_S)


# The cases that share an agent. Each gets its stage and returns its figures.


def fork(stage):
    """Five processes hold one socket: the parent alone has its traffic; after its end the eldest child has."""
    parent = stage.worker(stage.namespace(7000), "0")
    parent.ask("connect", address="127.0.0.1", port=7000)
    parent.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(BYTES, parent, 0)
    began = time.monotonic()
    children = [stage.fork(parent) for _ in range(4)]
    for child in children:
        stage.wait_shown(child)
    time.sleep(3)
    at_parents_end = parent.ask("pause")
    scrape = stage.settled()
    family = [parent, *children]
    for name, key, slack in COUNTERS:
        values = [shown(scrape, name, member) for member in family]
        expect_socket(f"{name} of the five, {values}, to sum up to", sum(values), at_parents_end, key, slack)
        expect(not any(values[1:]), f"expected {name} of the parent alone, seen {values}")

    heir, *others = children
    parent.tell("exit")
    parent.wait_ended()
    parents_end = time.monotonic()
    heir.ask("send", interval_s=INTERVAL_S)
    found = stage.wait_over(BYTES, heir, 0, DEATH_NOTICED_S)
    sent_when_found = heir.ask("info")["bytes"] - at_parents_end["bytes"]
    start = shown(found, BYTES, heir)
    expect(start <= sent_when_found, f"expected the heir to start at up to {sent_when_found} bytes sent, seen {start}")
    middle_truth, middle = heir.ask("pause"), stage.settled()
    heir.ask("send", interval_s=INTERVAL_S)
    time.sleep(3)
    end_truth, end = heir.ask("pause"), stage.settled()
    for name, key, slack in COUNTERS:
        grown = shown(end, name, heir) - shown(middle, name, heir)
        expect_near(f"the heir's {name} to grow by", grown, end_truth[key] - middle_truth[key], slack, slack)
        highest = stage.highest(name, heir, parents_end)
        sent = end_truth[key] - at_parents_end[key]
        late = key == "segments"  # as expect_socket says
        expect(highest <= sent + late, f"expected {name} of the heir up to {sent}, as sent since, seen {highest}")
        for other in others:
            highest = stage.highest(name, other, began)
            expect(highest == 0, f"expected no {name} of a younger child, seen {highest}")
    return (
        f"5 holders, {at_parents_end['segments']} segments counted once; the heir after "
        f"{found.time_s - parents_end:.1f} s, {shown(end, BYTES, heir) / 1e6:.1f} of the "
        f"{(end_truth['bytes'] - at_parents_end['bytes']) / 1e6:.1f} MB it sent"
    )


def scm_rights(stage):
    """A socket passed to an unrelated younger process stays the elder's until the elder closes it."""
    namespace = stage.namespace(7000)
    elder = stage.worker(namespace, "0")
    time.sleep(0.05)
    younger = stage.worker(namespace, "1")
    elder.ask("connect", address="127.0.0.1", port=7000)
    elder.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(BYTES, elder, 0)
    elder.ask("pause")
    elder.pass_socket_to(younger)
    passed = time.monotonic()
    younger.ask("send", interval_s=INTERVAL_S)
    time.sleep(NOTICED_S)
    truth, scrape = younger.ask("pause"), stage.settled()
    expect_own(scrape, elder, truth, "the elder while both hold it")
    highest = stage.highest(BYTES, younger, passed)
    expect(highest == 0, f"expected nothing of the younger's while the elder holds the socket, seen {highest}")

    elder.ask("close")
    closed = time.monotonic()
    younger.ask("send", interval_s=INTERVAL_S)
    found = stage.wait_over(BYTES, younger, 0)
    time.sleep(3)
    at_end, end = younger.ask("pause"), stage.settled()
    sent = at_end["bytes"] - truth["bytes"]
    expect(shown(end, BYTES, younger) <= sent, f"expected up to {sent} bytes, seen {shown(end, BYTES, younger)}")
    both = shown(end, BYTES, elder) + shown(end, BYTES, younger)
    expect_near("the bytes of both", both, at_end["bytes"], SLACK_BYTES)
    elders = {value for _, value in stage.agent.series(BYTES, found.time_s, **elder.labels)}
    expect(len(elders) == 1, f"expected the elder's counter to rest after the hand-over, seen {sorted(elders)}")
    return (
        f"the younger after {found.time_s - closed:.1f} s, with {shown(end, BYTES, younger) / 1e6:.1f} of the "
        f"{sent / 1e6:.1f} MB it then sent; nothing lost"
    )


def two_in_one_namespace(stage):
    """Loss on one process's connection shows in its own counter, not in its neighbour's, and in their namespace's."""
    namespace = stage.namespace(7000, 7001)
    lossy, quiet = (stage.worker(namespace, rank) for rank in ("0", "1"))
    lossy.ask("connect", address="127.0.0.1", port=7001)
    quiet.ask("connect", address="127.0.0.1", port=7000)
    for worker in (lossy, quiet):
        worker.ask("send", interval_s=INTERVAL_S)
        stage.wait_over(BYTES, worker, 0)
    with Loss(namespace, 7001, 20):
        since = time.monotonic()
        stage.wait_over(RETRANSMITS, lossy, 10, 60)
    own, others = truth_after_loss(lossy), truth_after_loss(quiet)
    scrape = stage.settled()
    expect_own(scrape, lossy, own, "the lossy one")
    expect_own(scrape, quiet, others, "the quiet one")
    expect(stage.highest(RETRANSMITS, quiet, since) == 0, "expected no retransmits of the quiet one")
    both = [shown(scrape, NAMESPACE_RETRANSMITS, worker) for worker in (lossy, quiet)]
    expect(both[0] == both[1] >= own["retransmits"], f"expected the namespace's retransmits twice, seen {both}")
    return f"own retransmits {own['retransmits']} and 0, the namespace's {both[0]:.0f}"


def port_reuse(stage):
    """A closed connection's port, used again at once by another process: each has its own bytes."""
    namespace = stage.namespace(7000)
    workers = [stage.worker(namespace, rank) for rank in ("0", "1")]
    truths = []
    for worker in workers:
        worker.ask("connect", address="127.0.0.1", port=7000, source_port=40000)
        worker.ask("send", interval_s=INTERVAL_S)
        stage.wait_over(BYTES, worker, 0)
        time.sleep(2)
        truths.append(worker.ask("pause"))
        worker.ask("close", reset=True)
    scrape = stage.settled()
    for which, worker, truth in zip(("the first", "the second"), workers, truths):
        expect_own(scrape, worker, truth, which)
    return " and ".join(f"{truth['bytes'] / 1e6:.1f} MB" for truth in truths)


def same_tuple(stage):
    """Two namespaces with the same addresses and ports, one of them lossy."""
    namespaces = [stage.namespace(7000) for _ in range(2)]
    lossy, quiet = workers = [stage.worker(namespace, str(rank)) for rank, namespace in enumerate(namespaces)]
    for worker in workers:
        worker.ask("connect", address="127.0.0.1", port=7000, source_port=40000)
        worker.ask("send", interval_s=INTERVAL_S)
        stage.wait_over(BYTES, worker, 0)
    with Loss(namespaces[0], 7000, 20):
        since = time.monotonic()
        stage.wait_over(RETRANSMITS, lossy, 10, 60)
    truths = [truth_after_loss(worker) for worker in workers]
    scrape = stage.settled()
    for which, worker, truth in zip(("the lossy one", "the quiet one"), workers, truths):
        expect_own(scrape, worker, truth, which)
    for name in (RETRANSMITS, NAMESPACE_RETRANSMITS):
        highest = stage.highest(name, quiet, since)
        expect(highest == 0, f"expected {name} 0 beside the lossy namespace, seen {highest}")
    return f"retransmits {truths[0]['retransmits']} and 0"


def wiped_environ(stage):
    """An environment overwritten, wholly or up to KITTY_WATCH=1 in its tail, leaves the labels what they were."""
    namespace = stage.namespace()
    whole, partly = (stage.worker(namespace, rank, environment={"RANK": rank, "JOB_NAME": JOB, "KITTY_WATCH": "1"})
                     for rank in ("0", "1"))  # fmt: skip
    for worker in (whole, partly):
        stage.wait_shown(worker)
    left = whole.ask("wipe")["left"]
    expect(left == [], f"expected an empty environment, seen {left}")
    left = partly.ask("wipe", keep="KITTY_WATCH=1")["left"]
    expect(left == ["KITTY_WATCH=1"], f"expected KITTY_WATCH=1 alone, seen {left}")
    since = time.monotonic()
    time.sleep(12)
    stage.agent.check()
    for what, worker in (("wholly", whole), ("partly", partly)):
        for scrape in [scrape for scrape in stage.agent.scrapes if scrape.time_s >= since]:
            found = [labels for labels, _ in scrape.find(INFO, pid=worker.labels["pid"])]
            expect(
                [(labels["rank"], labels["job"]) for labels in found] == [(worker.labels["rank"], JOB)],
                f"expected {worker.labels} {scrape.time_s - since:.1f} s after it was {what} wiped, seen {found}",
            )
    return "wholly and partly wiped: same labels for 12 s"


RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
JOB_NAMES = ("JOB_NAME", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE")


def from_place(place):
    """The names from that place on, each with its own value: the first of them wins."""
    ranks = {name: str(RANK_NAMES.index(name)) for name in RANK_NAMES[place:]}
    jobs = {name: name.lower() for name in JOB_NAMES[place:]}
    # A process number of Slurm's is a rank in a step, not in a batch script.
    return {"KITTY_WATCH": "1", "SLURM_STEP_ID": "0", **ranks, **jobs}, next(iter(ranks.values()), ""), next(iter(jobs.values()), "")


# One process for every line: its environment, and the rank and the job it means; None: not to be shown.
IDENTITIES = [
    *(from_place(place) for place in range(6)),
    ({"KITTY_WATCH": "1", "TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "78"}, "", "78"),
    ({"KITTY_WATCH": "1", "TORCHELASTIC_RUN_ID": "none"}, "", ""),
    ({"KITTY_WATCH": "1", "XRANK": "9", "RANKS": "9", "XJOB_NAME": "x"}, "", ""),
    ({"KITTY_WATCH": "0", "RANK": "1"}, None, None),
    ({"KITTY_WATCH": "", "RANK": "1"}, None, None),
    ({"KITTY_WATCH": "11", "RANK": "1"}, None, None),
    ({"KITTY_WATCH": "true", "RANK": "1"}, None, None),
    ({"XKITTY_WATCH": "1", "RANK": "1"}, None, None),
    ({"HIDDEN": "x\nKITTY_WATCH=1", "RANK": "1"}, None, None),
    # KITTY_WATCH behind 1.5 MB of other strings; one string may have 128 KiB (MAX_ARG_STRLEN of linux/binfmts.h).
    ({**{f"PAD_{i}": "x" * 120_000 for i in range(13)}, "KITTY_WATCH": "1", "RANK": "61", "JOB_NAME": "big",
      "TAIL": "y" * 1000}, "61", "big"),
    # What a label may hold: escaped, and cut at 128 bytes.
    ({"KITTY_WATCH": "1", "RANK": "62", "JOB_NAME": 'quo"te'}, "62", 'quo"te'),
    ({"KITTY_WATCH": "1", "RANK": "63", "JOB_NAME": "back\\slash"}, "63", "back\\slash"),
    ({"KITTY_WATCH": "1", "RANK": "64", "JOB_NAME": "new\nline"}, "64", "new\ufffdline"),
    ({"KITTY_WATCH": "1", "RANK": "65", "JOB_NAME": "not\\nnew"}, "65", "not\\nnew"),
    ({"KITTY_WATCH": "1", "RANK": "66", "JOB_NAME": 'x",rank="0"} 1\n# evil\\'}, "66", 'x",rank="0"} 1\ufffd# evil\\'),
    ({"KITTY_WATCH": "1", "RANK": "70", "JOB_NAME": "\x1b[2J\x7f\x9b\u202ed\u200bc"}, "70",
     "\ufffd[2J" + "\ufffd" * 3 + "d\ufffdc"),
    ({"KITTY_WATCH": "1", "RANK": "67", "JOB_NAME": "j" * 100_000}, "67", "j" * 128),
    ({"KITTY_WATCH": "1", "RANK": "67", "JOB_NAME": "j" * 100_001}, "67", "j" * 128),
    ({"KITTY_WATCH": "1", "RANK": "68", "JOB_NAME": "é" * 100}, "68", "é" * 64),
    ({"KITTY_WATCH": "1", "RANK": "69", "JOB_NAME": "\udcff\udcfe"}, "69", "\ufffd\ufffd"),  # bytes ff fe
]  # fmt: skip


def environments(stage):
    """Who each process is by its environment; none of them breaks the text."""
    namespace = stage.namespace()
    processes = [stage.lab.start(namespace, "sleep", "900", **environment) for environment, _, _ in IDENTITIES]
    pids = {str(process.pid) for process, (_, rank, _) in zip(processes, IDENTITIES) if rank is not None}

    def all_there(scrape):
        return pids <= {labels["pid"] for labels, _ in scrape.find(INFO)}

    stage.agent.wait("each watched process", all_there, NOTICED_S)
    time.sleep(NOTICED_S)  # what must not be shown would be by now, and what was copied from a parent is not any more
    stage.agent.check()
    scrape = stage.agent.scrapes[-1]
    for process, (environment, rank, job) in zip(processes, IDENTITIES):
        expect(process.poll() is None, f"sleep ended by itself with {process.returncode}")
        infos = scrape.find(INFO, pid=str(process.pid))
        found = [(labels["rank"], labels["job"], labels["role"]) for labels, _ in infos]
        expected = [] if rank is None else [(rank, job, "rank" if rank else "launcher")]
        expect(found == expected, f"expected {expected} of {str(environment)[-300:]}, seen {found}")
    return f"{len(IDENTITIES)} environments; {check_text(stage.agent)}"


def check_text(agent):
    """What the checkers say to the text as served."""
    text = fetch("127.0.0.1", agent.port, "/metrics").encode()
    checker = os.path.join(os.path.dirname(agent.command[0]), "exposition-check")
    said = []
    for name, command in (("exposition-check", [checker, "-"]), ("promtool", ["promtool", "check", "metrics"])):
        if not shutil.which(command[0]):
            said.append(f"{name} is missing")
            continue
        done = subprocess.run(command, input=text, capture_output=True)
        said.append(f"{name} content with the text")
        # promtool's exit status 3 is its taste in names; 1 is a text that it cannot read.
        content = done.returncode == 0 or (name == "promtool" and done.returncode == 3)
        expect(content, f"{name}: {(done.stdout + done.stderr).decode()}")
    return ", ".join(said)


def exec(stage):
    """A launcher's child has its parent's labels, then its own by its new environment; or none, and is gone."""
    namespace = stage.namespace(7000)
    launcher = stage.worker(namespace, "", environment={"KITTY_WATCH": "1", "JOB_NAME": JOB})
    stage.wait_shown(launcher, role="launcher")
    took = []
    for rank, seen_before in (("3", False), ("4", True)):
        child = stage.fork(launcher)
        if seen_before:
            stage.wait_shown(child, role="worker")
        since = time.monotonic()
        ranked = stage.exec(child, rank, {"KITTY_WATCH": "1", "RANK": rank, "JOB_NAME": JOB, "WORLD_SIZE": "9"})
        scrape = stage.wait_shown(ranked, role="rank", world_size="9")
        took.append(scrape.time_s - since)
        found = scrape.find(INFO, pid=ranked.labels["pid"])
        expect(len(found) == 1, f"expected one series of pid {ranked.pid}, seen {found}")
    ranked.ask("connect", address="127.0.0.1", port=7000)
    ranked.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(BYTES, ranked, 0)
    truth = ranked.ask("pause")
    expect_own(stage.settled(), ranked, truth, "the rank after its exec")

    since = time.monotonic()
    stage.exec(ranked, "", {"RANK": "4", "JOB_NAME": JOB})
    gone = stage.agent.wait(
        f"nothing of pid {ranked.pid} once its environment has no KITTY_WATCH",
        lambda scrape: all(labels.get("pid") != ranked.labels["pid"] for _, labels, _ in scrape.samples),
        5 + NOTICED_S,
    )
    time.sleep(NOTICED_S)
    back = [s for s in stage.agent.scrapes if s.time_s > gone.time_s and s.find(INFO, pid=ranked.labels["pid"])]
    expect(not back, f"expected pid {ranked.pid} to stay gone")
    expect(stage.agent.scrapes[-1].find(INFO, **launcher.labels, role="launcher"), "expected the launcher to stay")
    return f"RANK shown {took[0]:.1f} s and {took[1]:.1f} s after exec, gone {gone.time_s - since:.1f} s after the last"


def early_samples(stage):
    """How many of a new process's round trips are credited: in a namespace already watched, and in a new one."""
    watched, new = stage.namespace(7000), stage.namespace(7000)
    resident = stage.worker(watched, "0")
    resident.ask("connect", address="127.0.0.1", port=7000)
    resident.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(SAMPLES, resident, 0)
    resident.ask("pause")
    credited, truths = [], []
    for namespace in (watched, new):
        worker = stage.worker(namespace, "1")
        worker.ask("connect", address="127.0.0.1", port=7000)
        truths.append(worker.ask("count", messages=1500, interval_s=INTERVAL_S))
        credited.append((worker, stage.settled()))
    counts = [shown(scrape, SAMPLES, worker) for worker, scrape in credited]
    figures = [f"{count:.0f} of {truth['messages']}" for count, truth in zip(counts, truths)]
    text = f"samples in a watched namespace {figures[0]}, in a new one {figures[1]}"
    # One sample a round trip; under tcp_probe the last one is seen with the next packet.
    expect(counts[0] >= 0.97 * truths[0]["messages"], f"expected nearly all; {text}")
    for count, truth in zip(counts, truths):
        # The handshake has one, and a data segment acknowledged and answered apart is still one.
        expect(0 < count <= truth["messages"] + truth["retransmits"] + 2, f"expected no more than there were; {text}")
    return text


def exec_other_rank(stage):
    """A program that executes another rank's: what the old one did stays under its label, the new one starts at 0."""
    old = stage.worker(stage.namespace(7000), "5")
    old.ask("connect", address="127.0.0.1", port=7000)
    old.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(BYTES, old, 0)
    time.sleep(2)
    old_truth = old.ask("pause")
    expect_own(stage.settled(), old, old_truth, "the old rank")
    new = stage.exec(old, "6", {"KITTY_WATCH": "1", "RANK": "6", "JOB_NAME": JOB})
    stage.wait_shown(new)
    new.ask("connect", address="127.0.0.1", port=7000)
    new.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(BYTES, new, 0)
    time.sleep(2)
    new_truth, end = new.ask("pause"), stage.settled()
    expect_own(end, new, new_truth, "the new rank")
    highest = stage.highest(BYTES, new, 0)
    expect(highest <= new_truth["bytes"], f"expected up to {new_truth['bytes']} of rank 6, seen {highest}")
    expect(not end.find(BYTES, **old.labels), "expected no series of rank 5 any more")
    return f"{old_truth['bytes'] / 1e6:.1f} MB of rank 5, then {new_truth['bytes'] / 1e6:.1f} of rank 6"


def tuple_again(stage):
    """A socket disconnected (AF_UNSPEC) and connected with the same four numbers at once: its bytes go on counting."""
    worker = stage.worker(stage.namespace(7000), "0")
    worker.ask("connect", address="127.0.0.1", port=7000, source_port=40000)
    worker.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(BYTES, worker, 0)
    time.sleep(2)
    worker.ask("pause")
    stage.settled()
    before = worker.ask("connect_again")
    time.sleep(0.1)
    worker.ask("send", interval_s=INTERVAL_S)
    time.sleep(4)
    after, end = worker.ask("pause"), stage.settled()
    seen = shown(end, BYTES, worker)
    expect_near("the bytes of both connections", seen, before["bytes"] + after["bytes"], 2 * SLACK_BYTES)
    segments = before["segments"] + after["segments"]
    # What the first one sent last of all, and the second one's last byte, as expect_socket says.
    expect_near("the segments", shown(end, SEGMENTS, worker), segments, 2 * SLACK_SEGMENTS, above=2)
    return f"{before['bytes'] / 1e6:.1f} and {after['bytes'] / 1e6:.1f} MB, {seen / 1e6:.1f} in all"


def mptcp(stage):
    """A rank whose connection is MPTCP: its subflow's round trips and bytes are its own."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
    except OSError as error:
        raise Missing(f"MPTCP sockets ({error.strerror})") from None
    namespace = stage.namespace()
    stage.lab.start(namespace, sys.executable, "-IS", PROGRAM, "mptcp-echo", "127.0.0.1", "7000", "120")
    stage._wait_listening(namespace, 7000)
    worker = stage.worker(namespace, "0")
    worker.ask("connect", address="127.0.0.1", port=7000, mptcp=True)
    worker.ask("send", interval_s=INTERVAL_S)
    stage.wait_over(BYTES, worker, 0)
    before, middle = worker.ask("stop_sending")["messages"], stage.settled()
    worker.ask("send", interval_s=INTERVAL_S)
    time.sleep(4)
    sent, end = worker.ask("stop_sending")["messages"], stage.settled()
    expect_near("bytes", shown(end, BYTES, worker), sent * MESSAGE_BYTES, SLACK_BYTES)
    # The samples of the first second are lost where the namespace is new.
    samples = shown(end, SAMPLES, worker) - shown(middle, SAMPLES, worker)
    expect(samples >= 0.9 * (sent - before), f"expected a sample a message, seen {samples:.0f} of {sent - before}")
    peers = [labels["peer"] for labels, _ in end.find("kitty_peer_segments_sent_total", **worker.labels)]
    expect(peers == ["127.0.0.1"], f"expected the one peer, seen {peers}")
    return f"{samples:.0f} samples of {sent - before} messages, {shown(end, BYTES, worker) / 1e6:.1f} MB"


SHARED = (
    fork, scm_rights, two_in_one_namespace, port_reuse, same_tuple, tuple_again, mptcp, wiped_environ, environments, exec,
    exec_other_rank, early_samples,
)  # fmt: skip


def check_every_scrape(agent):
    """Over all scrapes: no series twice, and no counter falls."""
    last = {}
    for scrape in agent.scrapes:
        seen = set()
        for name, labels, value in scrape.samples:
            key = (name, *sorted(labels.items()))
            expect(key not in seen, f"expected each series once, seen twice: {key}")
            seen.add(key)
            if name.endswith(("_total", "_count", "_sum", "_bucket")):
                expect(value >= last.get(key, 0), f"expected no counter to fall, seen {key} {last.get(key)} to {value}")
                last[key] = value
    return f"{len(agent.scrapes)} scrapes, {len(last)} counters"


def check_sums_over_peers(agent):
    """In every scrape, a process's counter is the sum of its peers'."""
    compared = 0
    for scrape in agent.scrapes:
        for of_peer, of_process in SUMS_OVER_PEERS.items():
            sums = {}
            for labels, value in scrape.find(of_peer):
                process = (labels["pid"], labels["rank"], labels["job"])
                sums[process] = sums.get(process, 0) + value
            for labels, value in scrape.find(of_process):
                total = sums.get((labels["pid"], labels["rank"], labels["job"]), 0)
                expect(value == total, f"{of_process}{labels} is {value:.0f}, the sum of its {of_peer} {total:.0f}")
                compared += value > 0
    return f"{compared} sums that are not 0"


# The cases with an agent of their own. Each gets the binary.


def pid_reuse(kitty):
    """A rank dies and another gets its pid at once: the new one has neither its labels nor its counters."""
    if not os.path.exists("/proc/sys/kernel/ns_last_pid"):
        raise Missing("/proc/sys/kernel/ns_last_pid (CONFIG_CHECKPOINT_RESTORE)")
    # The agent is the first process of a pid namespace, and the workers are in it.
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with Agent(kitty, port=9312, prefix=unshare, wanted=Agent.EVERYTHING) as agent, Stage(agent, "pid_reuse") as stage:
        agent.wait("a first scrape", lambda scrape: True, 20)
        with open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children") as children:
            kitty_pid = int(children.read())
        inside = ["nsenter", f"--pid=/proc/{kitty_pid}/ns/pid", "--"]
        namespace = stage.namespace(7000)
        first = stage.worker(namespace, "1", prefix=inside)
        number = first.number_inside
        first.labels["pid"] = str(number)
        first.ask("connect", address="127.0.0.1", port=7000)
        first.ask("send", interval_s=INTERVAL_S)
        stage.wait_over(BYTES, first, 0)
        time.sleep(2)
        first_truth = first.ask("pause")
        expect_own(stage.settled(), first, first_truth, "the first")

        # A shell that is not watched sets the last pid given, so that its child gets the one wanted.
        take_pid = 'echo "$0" > /proc/sys/kernel/ns_last_pid && { env KITTY_WATCH=1 RANK=2 JOB_NAME="$@" & wait; }'
        first.tell("exit")
        first.wait_ended()
        died = time.monotonic()
        stage.lab.start(namespace, *inside, "sh", "-c", take_pid, str(number - 1), JOB, *stage.command())
        second = stage.accept({"rank": "2", "job": JOB})
        reused = time.monotonic()
        expect(second.number_inside == number, f"wanted pid {number} again, got {second.number_inside}")
        second.labels["pid"] = str(number)
        second.ask("connect", address="127.0.0.1", port=7000)
        second.ask("send", interval_s=INTERVAL_S)
        found = stage.wait_over(BYTES, second, 0)
        time.sleep(3)
        second_truth = second.ask("pause")
        expect_own(stage.settled(), second, second_truth, "the second")

        # The dead one is shown until its end is noticed, and never again once the new one is.
        ranks = [
            (scrape.time_s, [labels["rank"] for labels, _ in scrape.find(INFO, pid=str(number))])
            for scrape in agent.scrapes
            if scrape.time_s > died
        ]
        newcomer = next(time_s for time_s, seen in ranks if "2" in seen)
        for time_s, seen in ranks:
            in_turn = seen in ([], ["1"]) if time_s < newcomer else seen == ["2"]
            expect(in_turn, f"expected rank 1, none, rank 2 of pid {number}, seen {ranks}")
        lingered = max((time_s - died for time_s, seen in ranks if "1" in seen), default=0)
        expect(lingered <= DEATH_NOTICED_S, f"expected the first gone at once, seen {lingered:.1f} s after its end")
        for worker, truth in ((first, first_truth), (second, second_truth)):
            highest = stage.highest(BYTES, worker, 0)
            expect(highest <= truth["bytes"], f"expected up to {truth['bytes']} of {worker.labels}, seen {highest}")
        check_every_scrape(agent)
        return (
            f"pid {number} again after {reused - died:.2f} s; the first shown for {lingered:.1f} s more, "
            f"the second's traffic after {found.time_s - died:.1f} s; {first_truth['bytes'] / 1e6:.1f} and "
            f"{second_truth['bytes'] / 1e6:.1f} MB each its own"
        )


def make_next_get(number, limit_s):
    """Until this namespace number is the lowest that is free, and so the next that the kernel gives out.

    Lower ones are taken by UTS namespaces, which cost one each, until the returned descriptors are closed. None where
    somebody else has it by now.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newuts = 0x4000000  # linux/sched.h
    home = os.open("/proc/self/ns/uts", os.O_RDONLY)
    held = [home]
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if libc.unshare(clone_newuts) != 0:
            raise Failure(f"unshare(CLONE_NEWUTS): {os.strerror(ctypes.get_errno())}")
        taken = os.open("/proc/self/ns/uts", os.O_RDONLY)
        if (lowest := os.fstat(taken).st_ino) < number:
            held.append(taken)
            continue
        os.close(taken)
        libc.setns(home, clone_newuts)  # gives it back
        if lowest == number:
            return held
        time.sleep(0.2)  # the kernel takes a namespace down in the background
    for fd in held:
        os.close(fd)
    return None


def namespace_reuse(kitty):
    """A rank's namespace goes and another rank's gets its number: the counters are those of the new one."""
    # Not beside other cases: nobody else may make a namespace at the moment that counts.
    everything = Agent.EVERYTHING
    with Agent(kitty, port=9313, wanted=everything) as agent, Stage(agent, "namespace_reuse") as stage:
        agent.wait("a first scrape", lambda scrape: True, 20)
        for _ in range(8):
            old = stage.namespace(7000)
            number = os.stat(f"/run/netns/{old}").st_ino
            first = stage.worker(old, "0")
            first.ask("connect", address="127.0.0.1", port=7000)
            first.ask("send", interval_s=INTERVAL_S)
            before = shown(stage.wait_over(NAMESPACE_SEGMENTS, first, 500, 30), NAMESPACE_SEGMENTS, first)
            first.tell("exit")
            first.wait_ended()
            first.control.close()  # a socket of the namespace it was connected from, which it would keep alive
            died = time.monotonic()
            stage.lab.stop(*stage.lab.processes)
            run("ip", "netns", "del", stage.lab.namespaces.pop())
            if (held := make_next_get(number, 3)) is None:
                continue
            new = stage.lab.namespace("new")
            for fd in held:
                os.close(fd)
            if os.stat(f"/run/netns/{new}").st_ino == number:
                break
            run("ip", "netns", "del", stage.lab.namespaces.pop())
        else:
            raise Missing("a machine on which nobody else makes namespaces")
        reused = time.monotonic()
        second = stage.worker(new, "1")
        stage.wait_shown(second)
        time.sleep(3)
        seen = [value for _, value in stage.agent.series(NAMESPACE_SEGMENTS, died, **second.labels)]
        expect(seen and max(seen) == 0, f"expected no segment of the new, silent namespace, seen {seen}")
        return f"number {number} again after {reused - died:.1f} s; {before:.0f} segments in the old one, 0 in the new"


def agent_restart(kitty):
    """An agent started in the middle of a lossy flow counts from its start, not from the connection's."""

    def over(agent, worker, least, limit_s):
        return agent.wait(
            f"{RETRANSMITS}{worker.labels} over {least}", lambda s: shown(s, RETRANSMITS, worker) > least, limit_s
        )  # fmt: skip

    with Stage(None, "agent_restart") as stage:
        namespace = stage.namespace(7000)
        worker = stage.worker(namespace, "0")
        worker.ask("connect", address="127.0.0.1", port=7000)
        with Loss(namespace, 7000, 20):
            worker.ask("send", interval_s=INTERVAL_S)
            with Agent(kitty, port=9311) as agent:
                over(agent, worker, 20, 60)
                agent.stop(5)
            before = worker.ask("info")
            with Agent(kitty, port=9311, wanted=Agent.EVERYTHING) as agent:
                first = agent.wait(f"{BYTES}{worker.labels}", lambda s: s.find(BYTES, **worker.labels), 20)
                after = worker.ask("info")
                starts = []
                for name, key, _ in COUNTERS:
                    grown = after[key] - before[key]
                    starts.append(shown(first, name, worker))
                    expect(starts[-1] <= grown, f"expected {name} up to {grown} since the start, seen {starts[-1]}")
                over(agent, worker, 5, 30)
                end = worker.ask("pause")
                time.sleep(SETTLED_S)
                scrape = agent.wait("a scrape", lambda s: True, 5)
                seen = {key: shown(scrape, name, worker) for name, key, _ in COUNTERS}
                for name, key, _ in COUNTERS:
                    highest = max(value for _, value in agent.series(name, 0, **worker.labels))
                    grown = end[key] - before[key]
                    expect(highest <= grown, f"expected {name} up to {grown} since the start, seen {highest}")
                check_every_scrape(agent)
                agent.stop(5)
    return (
        f"{before['retransmits']} retransmits before, then from {starts[2]:.0f} to {seen['retransmits']:.0f} of "
        f"{end['retransmits'] - before['retransmits']}; {seen['bytes'] / 1e6:.1f} of "
        f"{(end['bytes'] - before['bytes']) / 1e6:.1f} MB"
    )


def handed_socket(kitty):
    """A socket older than the agent that comes to a running rank, or to a new one, brings nothing of its past."""
    with Stage(None, "handed_socket") as stage:
        namespace = stage.namespace(7000)
        unwatched = {"JOB_NAME": JOB}
        givers = [stage.worker(namespace, "", environment=unwatched) for _ in range(2)]
        running = stage.worker(namespace, "0")
        for giver in givers:
            giver.ask("connect", address="127.0.0.1", port=7000)
            giver.ask("count", messages=300, interval_s=0.001)
        figures = []
        with Agent(kitty, port=9314, wanted=Agent.EVERYTHING) as agent:
            stage.agent = agent
            stage.wait_shown(running, 20)
            time.sleep(2 * SETTLED_S)
            # More of a past, which the agent's own time has seen.
            pasts = [giver.ask("count", messages=300, interval_s=0.001) for giver in givers]
            givers[0].pass_socket_to(running)
            givers[0].ask("close")
            # The other's child becomes a rank by executing its program, and the socket goes on with it.
            heir = stage.fork(givers[1])
            givers[1].tell("exit")
            givers[1].wait_ended()
            heir.tell("exec_keeping", environment={"PATH": os.environ["PATH"], "KITTY_WATCH": "1", "RANK": "1",
                                                   "JOB_NAME": JOB})  # fmt: skip
            rank = stage.accept({"rank": "1", "job": JOB})
            for worker, past in ((running, pasts[0]), (rank, pasts[1])):
                worker.ask("send", interval_s=INTERVAL_S)
                stage.wait_over(BYTES, worker, 0)
            time.sleep(3)
            for worker, past, which in ((running, pasts[0], "handed"), (rank, pasts[1], "inherited")):
                truth, end = worker.ask("pause"), stage.settled()
                for name, key, slack in COUNTERS:
                    since = truth[key] - past[key]
                    highest = stage.highest(name, worker, 0)
                    expect(
                        highest <= since + (key == "segments"), f"{which}: expected {name} up to {since}, seen {highest}"
                    )
                samples = stage.highest(SAMPLES, worker, 0)
                expect(0 < samples <= truth["messages"] + 2, f"{which}: {samples} samples of {truth['messages']}")
                seen = shown(end, BYTES, worker)
                expect(seen >= 0.3 * (truth["bytes"] - past["bytes"]), f"{which}: expected it to be counted, seen {seen}")
                figures.append(f"{which}: {seen / 1e6:.1f} of {(truth['bytes'] - past['bytes']) / 1e6:.1f} MB since, "
                               f"{past['bytes'] / 1e6:.1f} before")  # fmt: skip
            check_every_scrape(agent)
    return "; ".join(figures)


def other_namespace(kitty):
    """Where net/tcp is the source, what a rank has queued in a namespace that it has left is absent, not 0."""
    queue = "net_tcp_tx_queue_bytes"
    with Stage(None, "other_namespace") as stage:
        namespace = stage.namespace()
        left, stays = (stage.worker(namespace, rank) for rank in ("0", "1"))
        sent = left.ask("fill_and_leave")["sent"]
        # Its namespace's table shows the connection where it has another watched process.
        stays.tell("exit")
        stays.wait_ended()
        with Agent(kitty, "--rtt-hook=none", port=9315, wanted=Agent.EVERYTHING) as agent:
            stage.agent = agent
            stage.wait_shown(left, 20)
            time.sleep(NOTICED_S)
            seen = agent.series(queue, 0, **left.labels)
            expect(not seen, f"expected no {queue} while {sent} bytes are queued, seen {seen[:3]}")
        with Agent(kitty, port=9315, wanted=Agent.EVERYTHING) as agent:
            scrape = agent.wait(f"{INFO}{left.labels}", lambda scrape: scrape.find(INFO, **left.labels), 20)
            value = scrape.value(queue, **left.labels)
            expect(value is None or value > 0, f"expected what is queued or nothing, seen {value}")
    return f"{sent / 1e6:.1f} MB queued: absent by net/tcp, {value} with the kernel's own list"


ALONE = (pid_reuse, namespace_reuse, agent_restart, handed_socket, other_namespace)


def run_shared(kitty, cases, results):
    def on_a_stage(agent, case):
        with Stage(agent, case.__name__) as stage:
            return case(stage)

    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        # Left first, also by SIGTERM: without the agent every case fails at once, and the pool is soon empty.
        with Agent(kitty, port=9310, wanted=Agent.EVERYTHING) as agent:
            agent.wait("a first scrape", lambda scrape: True, 20)
            running = [
                pool.submit(results.record, case.__name__, lambda case=case: on_a_stage(agent, case)) for case in cases
            ]
            concurrent.futures.wait(running)
            results.record("every scrape", lambda: check_every_scrape(agent))
            results.record("sums over peers", lambda: check_sums_over_peers(agent))
            results.record("stop", lambda: f"status 0 in {agent.stop(5):.2f} s after SIGTERM")


def main():
    cases = {case.__name__: case for case in (*SHARED, *ALONE)}
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--cases", default=",".join(cases))
    given = parser.parse_args()
    chosen = choose(parser, given.cases, cases)
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    # The stages are entered in threads, where no handler can be set.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kitty = os.path.abspath(given.kitty)
    results = Results()
    shared = [case for case in SHARED if case in chosen]
    if shared:
        run_shared(kitty, shared, results)
    for case in ALONE:
        if case in chosen:
            results.record(case.__name__, lambda case=case: case(kitty))
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
