#!/usr/bin/env python3
"""Reads under /proc that never come back: nothing of them hides a rank, stops a tick, or keeps the agent from ending.

    stuck_test.py KITTY [--cases NAME,...]

The processes that hang are of an ordinary user and hang as such may: on a FUSE file system of their own (hang.c, which
is compiled here). Needs root, a C compiler and /dev/fuse. Runs in pid, mount and network namespaces of its own,
natively and in vm/run. Exit status 0 when every case holds.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import OWN_PIDS, Agent, Missing, expect, isolate, run, run_cases  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PORT = 9490
USER = 47111
FUSE_MINOR = 229  # misc device, include/linux/miscdevice.h
# A refresh of 5 s, the second that a hung read is given, and a busy machine; an emulated one is slower.
FOUND_S = 20
STOP_LIMIT_S = 2
STALE_S = 15  # kStaleAfter of collector/process_watch.h
HUNG_OF_USER = 32  # kMaxHungReadsOfUser of collector/process_reader.h
CROWD = 40
QUICK_S = 5
WAYS = ("fault", "exec")


class Tools:
    """What hangs, compiled, and a device that any user may open, in a folder of this mount namespace's own."""

    def __init__(self, folder):
        self.folder = folder
        run("mount", "-t", "tmpfs", "-o", "mode=755", "hang", folder)
        self.hang = os.path.join(folder, "hang")
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            raise Missing("a C compiler")
        run(compiler, "-O1", "-pthread", "-o", self.hang, os.path.join(HERE, "hang.c"))
        self.device = os.path.join(folder, "fuse")
        subprocess.run(["modprobe", "fuse"], stderr=subprocess.DEVNULL)
        os.mknod(self.device, stat.S_IFCHR | 0o666, os.makedev(10, FUSE_MINOR))
        os.chmod(self.device, 0o666)
        try:
            os.close(os.open(self.device, os.O_RDWR))
        except OSError as error:
            raise Missing(f"/dev/fuse ({error.strerror})") from None


class Hung:
    """A process that will hang whoever reads of it. `with` ends it and its server."""

    def __init__(self, tools, way, uid=USER, **environment):
        command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", tools.hang, way]
        self.process = subprocess.Popen(
            [*command, *([] if way == "environ" else [tools.device])],
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.server = int(self._expect("ready"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.come_back()  # first: no signal ends a flush that nobody answers
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def _expect(self, word):
        """What comes behind the word."""
        said, _, more = self.process.stdout.readline().strip().partition(" ")
        if said != word:
            raise Missing(f"a user namespace with FUSE in it (hang says {said!r}, not {word!r})")
        return more

    def hang(self, settles_s=1.5):
        """Returns when it does: its writer takes a second to queue behind the fault."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self._expect("hung")
        time.sleep(settles_s)
        return self

    def come_back(self):
        """The storage does: the server's end answers all that is waited for."""
        if self.server:
            os.kill(self.server, signal.SIGKILL)
            self.server = 0


class Rank:
    """A watched process of root's that does nothing."""

    def __init__(self, rank):
        environment = {"PATH": os.environ["PATH"], "KITTY_WATCH": "1", "RANK": str(rank), "JOB_NAME": "stuck"}
        self.rank = str(rank)
        self.process = subprocess.Popen(["sleep", "600"], env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def start(kitty, *flags):
    return Agent(kitty, *flags, port=PORT, wanted=Agent.EVERYTHING)


def status_of(path):
    with socket.create_connection(("127.0.0.1", PORT), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{PORT}\r\nConnection: close\r\n\r\n".encode())
        return int(connection.recv(4096).split()[1])


def stuck(scrape):
    return scrape.value("kitty_unreadable_processes", reason="stuck")


def has(scrape, rank):
    return bool(scrape.find("kitty_process_info", rank=str(rank)))


def succeeds(scrape):
    return scrape.value("kitty_collector_success", collector="processes") == 1


def hung_is_told(agent, pid, limit_s=FOUND_S):
    agent.wait("kitty_unreadable_processes{reason=stuck} 1", lambda s: stuck(s) == 1, limit_s)
    named = re.search(f"does not come back.* pid={pid} comm=hang", agent.output())
    expect(named, f"the log does not name {pid}:\n{agent.output()}")


def goes_on(agent):
    """New ranks are found, dead ones go, all the while the series of one that stays move on."""
    scrape = agent.wait("rank 1", lambda s: has(s, 1), FOUND_S)
    with Rank(2) as rank:
        agent.wait("the new rank 2", lambda s: has(s, 2), FOUND_S)
        rank.stop()
        agent.wait("the dead rank 2 gone", lambda s: not has(s, 2), FOUND_S)
    last = agent.wait(
        "ticks", lambda s: s.value("process_cpu_seconds_total") > scrape.value("process_cpu_seconds_total"), FOUND_S
    )
    expect(last.find("net_tcp_out_segs_total", rank="1"), "rank 1 has lost its namespace's counters")
    expect(succeeds(last) and status_of("/-/ready") == 200, "expected success and readiness, as all others are seen")


def ends(agent, *pids, release=None):
    """SIGTERM: the port free at once, the end within STOP_LIMIT_S, and in the log whom it would have waited for.

    `release`: called when the log says so, where the kernel lets no signal end the wait."""
    agent.stopping.set()
    agent.thread.join()
    started = time.monotonic()
    agent.process.terminate()
    while True:
        try:
            with socket.create_server(("127.0.0.1", PORT), reuse_port=False):
                free = time.monotonic() - started
                break
        except OSError:
            expect(time.monotonic() < started + STOP_LIMIT_S, "the port is not free")
            time.sleep(0.01)
    if release:
        while "left behind in the kernel" not in agent.output():
            expect(time.monotonic() < started + STOP_LIMIT_S, f"it does not say whom it waits for:\n{agent.output()}")
            time.sleep(0.01)
        release()
    try:
        code = agent.process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        code = None
    took = time.monotonic() - started
    expect(code == 0 and took < STOP_LIMIT_S, f"ended with {code} after {took:.1f} s:\n{agent.output()}")
    for pid in pids:
        expect(
            re.search(f"left behind in the kernel.* pid={pid} ", agent.output()),
            f"the log does not say that it waits for {pid}:\n{agent.output()}",
        )
    return f"port free after {free:.2f} s, ended after {took:.2f} s"


def before_start(kitty, tools, way):
    """The process hangs already when the agent starts."""
    with Hung(tools, way).hang() as hung, Rank(1):
        started = time.monotonic()
        with start(kitty) as agent:
            agent.wait("a scrape", lambda s: s.find("kitty_build_info"), QUICK_S)
            listens = time.monotonic() - started
            hung_is_told(agent, hung.pid)
            goes_on(agent)
            agent.wait("the hung process still counted", lambda s: stuck(s) == 1, FOUND_S)
            return f"listens after {listens:.1f} s; {ends(agent, hung.pid)}"


def while_running(kitty, tools, way):
    """An unwatched process that was seen before begins to hang."""
    with Hung(tools, way) as hung, Rank(1), start(kitty) as agent:
        agent.wait("rank 1", lambda s: has(s, 1), FOUND_S)
        hung.hang()
        if way == "exec":
            hung_is_told(agent, hung.pid)
        goes_on(agent)
        # Where only memory is waited for, nothing is read of it again.
        return ends(agent, *([hung.pid] if stuck(agent.scrapes[-1]) else []))


def watched(kitty, tools, way):
    """A watched process begins to hang: it keeps its identity, and what cannot be known of it is absent."""
    environment = {"KITTY_WATCH": "1", "RANK": "7", "JOB_NAME": "stuck"}
    with Hung(tools, way, **environment) as hung, Rank(1), start(kitty) as agent:
        agent.wait("rank 7", lambda s: has(s, 7), FOUND_S)
        hung.hang()
        if way == "exec" and reads_hang(hung.pid, "stat"):
            hung_is_told(agent, hung.pid)
        goes_on(agent)
        scrape = agent.wait("rank 7", lambda s: has(s, 7), QUICK_S)
        pids = [hung.pid] if stuck(scrape) else []
        return ends(agent, *pids)


def reads_hang(pid, name):
    reader = subprocess.Popen(["cat", f"/proc/{pid}/{name}"], stdout=subprocess.DEVNULL)
    try:
        reader.wait(1)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        reader.kill()
        reader.wait()


def comes_back(kitty, tools, way):
    """The storage answers again: the process is no longer counted, nor skipped."""
    with Hung(tools, way).hang() as hung, Rank(1), start(kitty) as agent:
        hung_is_told(agent, hung.pid)
        hung.come_back()
        agent.wait("nothing stuck", lambda s: stuck(s) == 0, FOUND_S)
        return ends(agent)


def check(kitty, tools, way):
    """`kitty check` says which process hangs it, by pid and name, and ends."""
    with Hung(tools, way).hang() as hung, Rank(1):
        command = [kitty, "check", f"--web.listen-address=127.0.0.1:{PORT}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        expect(re.search(rf"{hung.pid}\s+\(hang\)", done.stdout), f"it does not name {hung.pid} (hang):\n{done.stdout}")
        expect(done.returncode == 1, f"expected exit status 1, seen {done.returncode}")
        said = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60).stdout)
        expect([p["pid"] for p in said["stuck"]] == [hung.pid], f"seen {said['stuck']}")
        expect([p["rank"] for p in said["watched"]] == ["1"], f"seen {said['watched']}")
        return f"pid {hung.pid} (hang)"


def crowd(kitty, tools):
    """More hung processes of one user than he may have readers: another user's rank is found."""
    with contextlib.ExitStack() as stack:
        for _ in range(CROWD):
            stack.enter_context(Hung(tools, "exec")).hang(settles_s=0)
        time.sleep(1)
        agent = stack.enter_context(start(kitty))
        stack.enter_context(Rank(1))
        scrape = agent.wait("rank 1", lambda s: has(s, 1), FOUND_S)
        scrape = agent.wait("the hung ones counted", lambda s: stuck(s) == HUNG_OF_USER, FOUND_S)
        waiting = scrape.value("kitty_unreadable_processes", reason="waiting")
        # And those of his other processes, the servers, that come behind.
        expect(waiting >= CROWD - HUNG_OF_USER, f"expected {CROWD - HUNG_OF_USER} waiting, seen {waiting}")
        expect("others are read by turns" in agent.output(), f"the log does not say so:\n{agent.output()}")
        goes_on(agent)
        return f"{HUNG_OF_USER} stuck, {waiting:.0f} waiting; {ends(agent)}"


def endless_environ(kitty, tools):
    """An environment of a terabyte is given up at 8 MiB, counted, and not read again."""
    with Hung(tools, "environ").hang() as hung, Rank(1), start(kitty) as agent:
        agent.wait("it counted", lambda s: s.value("kitty_unreadable_processes", reason="too_long") == 1, FOUND_S)
        goes_on(agent)
        since = agent.scrapes[-1]
        time.sleep(10)
        last = agent.scrapes[-1]
        name = "process_cpu_seconds_total"
        share = (last.value(name) - since.value(name)) / (last.time_s - since.time_s)
        expect(share < 0.25, f"{share * 100:.0f} % of a core goes into it")
        expect(last.value("kitty_unreadable_processes", reason="too_long") == 1, "it is no longer counted")
        with open(f"/proc/{hung.pid}/status") as file:
            tables = int(re.search(r"VmPTE:\s+(\d+)", file.read())[1])
        expect(tables < 1024, f"reading it made page tables of {tables} kB in its cgroup")
        return f"{share * 100:.1f} % of a core, page tables {tables} kB; {ends(agent)}"


def listing(kitty, tools):
    """The listing of /proc itself hangs: the state grows old, and that is said."""
    folder = os.path.join(tools.folder, "procfs")
    os.makedirs(folder, exist_ok=True)
    server = subprocess.Popen([tools.hang, "listing", tools.device, folder], stdout=subprocess.PIPE, text=True)
    try:
        expect(server.stdout.readline() == "ready\n", "expected the false procfs to be ready")
        with start(kitty, f"--path.procfs={folder}") as agent, contextlib.ExitStack() as stack:
            stack.callback(server.kill)  # before the agent is waited for, whatever fails
            agent.wait("a first listing", succeeds, FOUND_S)
            expect(status_of("/-/ready") == 200, "expected it to be ready")
            server.send_signal(signal.SIGUSR1)
            agent.wait("success 0", lambda s: not succeeds(s), FOUND_S)
            deadline = time.monotonic() + STALE_S + FOUND_S
            while status_of("/-/ready") == 200 and time.monotonic() < deadline:
                time.sleep(0.5)
            expect(status_of("/-/ready") == 503, "expected it not to be ready")
            expect(status_of("/-/healthy") == 200, "expected it to be healthy")
            agent.wait("ticks", lambda s: s.find("kitty_build_info"), QUICK_S)
            # What the server has read and does not answer is waited for in spite of all signals (fs/fuse/dev.c).
            return ends(agent, release=server.kill)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        subprocess.run(["umount", "-l", folder])


def fifo(kitty, tools, when):
    """A false procfs where an environment is a FIFO: what any file system may do there."""
    with tempfile.TemporaryDirectory(dir=tools.folder) as folder, Rank(1) as rank, contextlib.ExitStack() as mounts:

        def show(process):
            path = os.path.join(folder, str(process.pid))
            os.mkdir(path)
            run("mount", "--bind", f"/proc/{process.pid}", path)
            mounts.callback(subprocess.run, ["umount", "-l", path])

        def stat_line(start):
            numbers = "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 1000 1 1 1 1 1 0".format(start)
            with open(os.path.join(false, "stat"), "w") as file:
                file.write(f"777777 (hang) {numbers}" + " 0" * 17 + " 1 1 1 1 1 1 1 0\n")

        false = os.path.join(folder, "777777")
        os.mkdir(false)
        stat_line(12345)
        environ = os.path.join(false, "environ")
        if when == "before":
            os.mkfifo(environ)
        else:
            with open(environ, "w") as file:
                file.write("A=1\0")
        show(rank.process)
        with start(kitty, f"--path.procfs={folder}", "--rtt-hook=none") as agent:
            agent.wait("rank 1", lambda s: has(s, 1), FOUND_S)
            if when != "before":
                os.unlink(environ)
                os.mkfifo(environ)
                stat_line(12346)
            hung_is_told(agent, 777777)
            with Rank(2) as second:
                show(second.process)
                agent.wait("rank 2", lambda s: has(s, 2), FOUND_S)
                rank.stop()
                agent.wait("rank 1 gone", lambda s: not has(s, 1), FOUND_S)
                result = ends(agent, 777777)
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--cases", default="")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    isolate(given.inside, "--net", "--mount", *OWN_PIDS)
    kitty = os.path.abspath(given.kitty)
    with tempfile.TemporaryDirectory() as folder:
        try:
            tools = Tools(folder)
        except Missing as missing:
            print(f"SKIP: {missing} is missing")
            return 77
        cases = {}
        for case in (before_start, while_running, watched, comes_back, check):
            for way in WAYS:
                cases[f"{case.__name__}, {way}"] = lambda case=case, way=way: case(kitty, tools, way)
        for case in (crowd, endless_environ, listing):
            cases[case.__name__] = lambda case=case: case(kitty, tools)
        for when in ("before", "while"):
            cases[f"fifo, {when}"] = lambda when=when: fifo(kitty, tools, when)
        wanted = given.cases.split(",") if given.cases else []
        chosen = [(n, c) for n, c in cases.items() if not wanted or n.split(",")[0] in wanted]
        try:
            return run_cases(chosen)
        finally:
            subprocess.run(["umount", "-l", folder])


if __name__ == "__main__":
    sys.exit(main())
