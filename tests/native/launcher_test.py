#!/usr/bin/env python3
"""Each rank is found once, by its number, and no launcher is taken for one: with the launchers themselves.

    launcher_test.py KITTY [--cases torchrun_in_pods,srun,...]

torchrun and torch.multiprocessing of Debian's python3-torch, Open MPI, and a Slurm of two nodes on this machine, in pid,
network, mount and UTS namespaces of the test's own. The ranks are small programs (launched_programs.py). What is missing is
named, and its cases skipped. Needs root. Exit status 0 when every case that could run holds, 77 when none could.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import OWN_PIDS, Agent, Failure, Missing, choose, expect, isolate, run, run_cases  # noqa: E402

PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch is for
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launched_programs.py")
ADDRESS = "10.78.0.1"
PORT = 9327
RENDEZVOUS_PORT = 29511
INFO = "kitty_process_info"
START_LIMIT_S = 120  # torch's import, several times at once on a busy machine
NOTICED_S = 20
SETTLED_S = 6  # a whole discovery


class Job:
    """A job's folder, environment and processes; `with` ends all of them."""

    def __init__(self, name, count):
        self.name = name
        self.count = count
        self.processes = []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix=f"kitty-{self.name}-")
        self.ring = (PYTHON, PROGRAM, "ring", self.folder, str(self.count))
        return self

    def __exit__(self, *_):
        with open(os.path.join(self.folder, "stop"), "w"):
            pass
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *command, **environment):
        with open(os.path.join(self.folder, f"log-{len(self.processes)}"), "w") as log:
            self.processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                    env={"PATH": os.environ["PATH"], "HOME": "/root", "KITTY_WATCH": "1", "JOB_NAME": self.name,
                         **environment},
                )
            )  # fmt: skip

    def said(self):
        logs = [name for name in sorted(os.listdir(self.folder)) if name.startswith("log-")]
        return "".join(f"\n{log}: " + open(os.path.join(self.folder, log)).read()[-1500:] for log in logs)

    def pids(self):
        """Of the ranks, by number, as they say themselves once each is connected to the next."""
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            found = [os.path.join(self.folder, f"pid-{rank}") for rank in range(self.count)]
            if all(os.path.exists(path) for path in found):
                return [open(path).read() for path in found]
            time.sleep(0.2)
        raise Failure(f"the job did not start: {self.said()}")


def check(agent, kitty, job, made_up=False):
    """That the agent shows the job's ranks, each once, and everything else of it as a launcher."""
    pids = job.pids()
    wanted = dict(zip(pids, map(str, range(job.count))))
    if made_up:  # by when they started
        order = sorted(pids, key=lambda pid: (started(pid), int(pid)))
        wanted = {pid: f"?{at}" for at, pid in enumerate(order)}

    def ranks(scrape):
        return {labels["pid"]: labels["rank"] for labels, _ in scrape.find(INFO, job=job.name, role="rank")}

    try:
        agent.wait("the job's ranks", lambda scrape: ranks(scrape) == wanted, NOTICED_S)
    except Failure:
        seen = [f"{labels['pid']} {labels['comm']} {labels['role']} {labels['rank']}"
                for labels, _ in agent.scrapes[-1].find(INFO, job=job.name)]  # fmt: skip
        raise Failure(f"expected ranks by pid {wanted}, seen {seen}") from None
    since = time.monotonic()
    time.sleep(SETTLED_S)
    for scrape in agent.scrapes:
        if scrape.time_s >= since:
            expect(ranks(scrape) == wanted, f"expected ranks by pid {wanted} to stay, seen {ranks(scrape)}")
    scrape = agent.scrapes[-1]
    launchers = [labels["comm"] for labels, _ in scrape.find(INFO, job=job.name, role="launcher")]
    expect(all(labels["rank"] == "" for labels, _ in scrape.find(INFO, job=job.name, role="launcher")),
           "expected no launcher to have a rank")  # fmt: skip
    last = job.count - 1
    said = diagnosed(kitty, job, ",".join(sorted(wanted.values())) if made_up else f"0-{last}" if last > 1 else "0,1")
    froms = sorted({labels["rank_from"] for labels, _ in scrape.find(INFO, job=job.name, role="rank")})
    return f"{job.count} ranks by {', '.join(froms)}; launchers {' '.join(sorted(launchers)) or 'none'}; {said}"


def started(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[19])


def diagnosed(kitty, job, ranks):
    """What diagnose says of a job all of whose ranks are on this node: nobody is to be named, missing or too many."""
    done = subprocess.run([kitty, "diagnose", f"127.0.0.1:{PORT}", f"--job={job.name}", "--window=4s", "--json"],
                          capture_output=True, text=True)  # fmt: skip
    expect(done.returncode in (0, 2), f"expected diagnose to name nobody, seen status {done.returncode}: {done}")
    verdict = json.loads(done.stdout)["jobs"][0]
    seen = [unit["ranks"] for unit in verdict["units"]]
    expect(seen == [ranks], f"expected diagnose to show one unit of ranks {ranks}, seen {seen}")
    told = [spot for spot in verdict["blind_spots"] if "ranks seen (" in spot]
    expect(not told, f"expected no missing rank, seen {told}")
    return f"diagnose: {verdict['verdict']} of ranks {ranks}"


def need(program, package):
    if not shutil.which(program):
        raise Missing(f"{program} (package {package})")


def need_torch():
    if subprocess.run([PYTHON, "-c", "import importlib.util as u; exit(not u.find_spec('torch'))"]).returncode != 0:
        raise Missing("torch (package python3-torch)")


def torchrun(node, ranks):
    """Of two nodes, --node_rank from the shell's $node."""
    return (f"exec {PYTHON} -m torch.distributed.run --nnodes 2 --nproc_per_node {ranks} --node_rank {node}"
            f" --master_addr {ADDRESS} --master_port {RENDEZVOUS_PORT} --redirects 1 --tee 1 --log_dir ")  # fmt: skip


# Cases


def torchrun_in_pods(agent, kitty, slurm):
    """As in PyTorchJob: RANK and WORLD_SIZE are the pods', and stand in torchrun's own environment."""
    need_torch()
    with Job("pods", 4) as job:
        for node in range(2):
            job.start("sh", "-c", torchrun(node, 2) + f"{job.folder}/torch-{node} {' '.join(job.ring[1:])}",
                      RANK=str(node), WORLD_SIZE="2", MASTER_ADDR=ADDRESS)  # fmt: skip
        return check(agent, kitty, job)


def torchrun_of_one(agent, kitty, slurm):
    """One rank a pod, whose number is the pod's."""
    need_torch()
    with Job("ones", 2) as job:
        for node in range(2):
            job.start("sh", "-c", torchrun(node, 1) + f"{job.folder}/torch-{node} {' '.join(job.ring[1:])}",
                      RANK=str(node), WORLD_SIZE="2", MASTER_ADDR=ADDRESS)  # fmt: skip
        return check(agent, kitty, job)


def spawn(agent, kitty, slurm):
    need_torch()
    with Job("spawn", 3) as job:
        job.start(PYTHON, PROGRAM, "spawn", job.folder, "3")
        return check(agent, kitty, job, made_up=True)


def open_mpi(agent, kitty, slurm):
    need("mpirun", "openmpi-bin")
    with Job("mpi", 3) as job:
        job.start("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", "sh", "-c", f"{' '.join(job.ring)}; :")
        return check(agent, kitty, job)


def srun(agent, kitty, slurm):
    """With a shell around each rank."""
    slurm.start()
    with Job("srun", 2) as job:
        job.start("srun", "-N2", "-n2", "sh", "-c", f"{' '.join(job.ring)}; :", SLURM_CONF=slurm.conf)
        return check(agent, kitty, job)


def srun_torchrun(agent, kitty, slurm):
    need_torch()
    slurm.start()
    with Job("srun-torch", 4) as job:
        script = torchrun("$SLURM_PROCID", 2) + f"{job.folder}/torch-$SLURM_PROCID {' '.join(job.ring[1:])}"
        job.start("srun", "-N2", "-n2", "sh", "-c", script, SLURM_CONF=slurm.conf)
        return check(agent, kitty, job)


def srun_spawn(agent, kitty, slurm):
    """SLURM_PROCID is the node's, and each of what is spawned inherits it."""
    need_torch()
    slurm.start()
    with Job("srun-spawn", 2) as job:
        job.start("srun", "-N1", "-n1", PYTHON, PROGRAM, "spawn", job.folder, "2", SLURM_CONF=slurm.conf)
        return check(agent, kitty, job, made_up=True)


def sbatch_mpirun(agent, kitty, slurm):
    """mpirun has the batch script's SLURM_PROCID, and orted on the other node that of its own step."""
    need("mpirun", "openmpi-bin")
    slurm.start()
    with Job("sbatch-mpi", 4) as job:
        script = os.path.join(job.folder, "job.sh")
        with open(script, "w") as file:
            file.write(f"#!/bin/sh\nmpirun --allow-run-as-root -n 4 {' '.join(job.ring)}\n")
        job.start("sbatch", "--wait", "-N2", "-n4", "-o", f"{job.folder}/log-batch", script, SLURM_CONF=slurm.conf)
        return check(agent, kitty, job)


CASES = {case.__name__: case for case in (torchrun_in_pods, torchrun_of_one, spawn, open_mpi, srun, srun_torchrun,
                                          srun_spawn, sbatch_mpirun)}  # fmt: skip


class Slurm:
    """A controller and two nodes, n0 and n1, started at first use; ended with the pid namespace at the latest."""

    PROGRAMS = (("munged", "munge"), ("slurmctld", "slurm-wlm"), ("slurmd", "slurm-wlm"), ("srun", "slurm-wlm"))

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="kitty-slurm-")
        self.conf = os.path.join(self.folder, "slurm.conf")
        self.processes = []

    def start(self):
        for program, package in self.PROGRAMS:
            need(program, package)
        if self.processes:
            return
        host = "kitty-lab"
        run("hostname", host)
        run("mount", "-t", "tmpfs", "run", "/run")
        os.mkdir("/run/munge")
        with open(f"{self.folder}/hosts", "w") as hosts:
            hosts.write(f"127.0.0.1 localhost\n{ADDRESS} {host}\n")
        run("mount", "--bind", f"{self.folder}/hosts", "/etc/hosts")
        with open(os.open(f"{self.folder}/key", os.O_WRONLY | os.O_CREAT, 0o400), "wb") as key:
            key.write(os.urandom(1024))
        os.mkdir(f"{self.folder}/state")
        # As slurm.conf(5) has it; no cgroups, no accounting, no users but root.
        nodes = "".join(f"NodeName=n{n} NodeHostname={host} NodeAddr={ADDRESS} Port={16820 + n} CPUs=2\n" for n in (0, 1))
        with open(self.conf, "w") as file:
            file.write(
                f"ClusterName=lab\nSlurmctldHost={host}({ADDRESS})\nSlurmctldPort=16817\nSlurmUser=root\n"
                "AuthType=auth/munge\nCryptoType=crypto/munge\nMpiDefault=none\nProctrackType=proctrack/linuxproc\n"
                "TaskPlugin=task/none\nReturnToService=2\nJobAcctGatherType=jobacct_gather/none\n"
                "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n"
                f"SlurmctldPidFile={self.folder}/ctld.pid\nSlurmdPidFile={self.folder}/%n.pid\n"
                f"SlurmdSpoolDir={self.folder}/spool-%n\nStateSaveLocation={self.folder}/state\n"
                f"SlurmctldLogFile={self.folder}/ctld.log\nSlurmdLogFile={self.folder}/%n.log\n"
                f"{nodes}PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4 State=UP\n"
            )
        munge = ["munged", "--force", "--foreground", f"--key-file={self.folder}/key", f"--pid-file={self.folder}/munge.pid",
                 f"--log-file={self.folder}/munge.log", f"--seed-file={self.folder}/seed"]  # fmt: skip
        self._start(*munge)
        self._wait("munged", lambda: os.path.exists("/run/munge/munge.socket.2"))
        self._start("slurmctld", "-D", "-f", self.conf)
        for node in ("n0", "n1"):
            self._start("slurmd", "-D", "-N", node, "-f", self.conf)
        self._wait("two idle nodes", lambda: self._sinfo() == ["idle", "idle"])

    def _start(self, *command):
        self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]}))  # fmt: skip

    def _sinfo(self):
        return subprocess.run(["sinfo", "-hN", "-o", "%T"], capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], "SLURM_CONF": self.conf}).stdout.split()  # fmt: skip

    def _wait(self, what, condition):
        deadline = time.monotonic() + START_LIMIT_S
        while not condition():
            logs = "".join(f"\n{name}: " + open(f"{self.folder}/{name}").read()[-800:]
                           for name in sorted(os.listdir(self.folder)) if name.endswith(".log"))  # fmt: skip
            expect(time.monotonic() < deadline, f"Slurm did not come up: no {what}: {logs}")
            time.sleep(0.2)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # of its namespaces
    given = parser.parse_args()
    chosen = choose(parser, given.cases, CASES)
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    isolate(given.inside, "--net", "--mount", "--uts", *OWN_PIDS)
    # Open MPI and Slurm want an interface that is not loopback.
    run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "end")
    run("ip", "addr", "add", f"{ADDRESS}/24", "dev", "eth0")
    for device in ("eth0", "end"):
        run("ip", "link", "set", device, "up")
    kitty = os.path.abspath(given.kitty)
    slurm = Slurm()
    try:
        with Agent(kitty, port=PORT, wanted=re.compile(INFO)) as agent:
            agent.wait("a first scrape", lambda scrape: True, 30)
            return run_cases((case.__name__, lambda case=case: case(agent, kitty, slurm)) for case in chosen)
    finally:
        slurm.stop()


if __name__ == "__main__":
    sys.exit(main())
