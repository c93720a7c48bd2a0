#!/usr/bin/env python3
"""What the agent gave up once it serves, seen from outside and from within, and what each capability is for.

    privileges_test.py KITTY [--cases NAME,...]

System calls are made from within a running agent through ptrace(2), so they meet what an attacker's code in it would
meet. Needs root, and setpriv for users with some capabilities only. Runs in a pid namespace of its own and takes about
two minutes. Exit status 0 when every case holds; each prints its figures.
"""

import argparse
import ctypes
import errno
import os
import platform
import re
import shutil
import signal
import struct
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from agent_test import LAB, NOBODY, OWNER_METRICS, SLACK_S, expect, hook_of  # noqa: E402
from lab import OWN_PIDS, Agent, Failure, Lab, Missing, choose, isolate, run_cases  # noqa: E402

PORT, ECHO_PORT = 9485, 9486
REFRESH_S = 5
SOMEBODY = 65533  # neither the agent's user nor root
DAC_READ_SEARCH, SYS_PTRACE, SYS_ADMIN, BPF = 2, 19, 21, 39  # include/uapi/linux/capability.h
OWN_USER = 65525  # privileges/user.h, kOwnUser
FOR_PROCFS = 1 << SYS_PTRACE | 1 << DAC_READ_SEARCH
FOUR = ("bpf", "perfmon", "sys_ptrace", "dac_read_search")
COLLECTORS = ("processes", "sockets", "network", "rtt")


class PrivilegesAgent(Agent):
    WANTED = re.compile("(?!kitty_tcp_rtt_seconds_bucket)(net_tcp_|kitty_)")


class Host:
    """A lab, and a folder with the agent and the traffic where every user may read them."""

    def __init__(self, kitty):
        # Process ids begin anew in a pid namespace; its own number is the host's.
        self.lab = Lab(f"privileges-{os.stat('/proc/self/ns/pid').st_ino}")
        self.given = kitty

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o755)
        self.kitty = shutil.copy(self.given, self.folder.name)
        self.program = shutil.copy(LAB, self.folder.name)
        self.lab.__enter__()
        self.namespace = self.lab.namespace("lo")
        self.lab.start_echo(self.namespace, "127.0.0.1", ECHO_PORT)
        return self

    def __exit__(self, *error):
        self.lab.__exit__(*error)
        self.folder.cleanup()

    def watched(self, rank, uid=0):
        """Starts a watched sender of a user; returns its labels."""
        sender = self.lab.start(
            self.namespace, "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
            "/usr/bin/python3", "-IS", self.program, "send", "127.0.0.1", str(ECHO_PORT), "--interval", "0.01",
            KITTY_WATCH="1", RANK=str(rank), JOB_NAME="privileges",
        )  # fmt: skip
        return {"pid": str(sender.pid), "rank": str(rank), "job": "privileges"}


def shows(agent, labels, names=OWNER_METRICS):
    for name in names:
        agent.wait(f"{name}{labels}", lambda s, n=name: s.value(n, **labels) is not None, REFRESH_S + SLACK_S)


def kept_on_this_kernel():
    """The capabilities that must be left after start, and those that older kernels want for reading maps besides."""
    major, minor = (int(number) for number in platform.release().split(".")[:2])
    return FOR_PROCFS, 0 if (major, minor) >= (5, 19) else 1 << BPF | 1 << SYS_ADMIN


def threads_of(pid):
    """{thread's name: its status fields}, one per thread (a name's number follows it where it is not the only one)."""
    threads = {}
    for tid in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
        with open(f"/proc/{pid}/task/{tid}/status", encoding="ascii") as status:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
        threads[f"{fields['Name']} {tid}"] = fields
    return threads


# System calls from within


class Regs(ctypes.Structure):
    """struct user_regs_struct of x86-64, <sys/user.h>."""

    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base "
        "gs_base ds es fs gs".split()
    ]


PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_DETACH = 9, 12, 13, 17
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000
SYSCALL_INSTRUCTION = b"\x0f\x05"
SCRATCH_BELOW_STACK = 4096  # far below the red zone of 128 bytes; its bytes are put back
ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
# x86-64, arch/x86/entry/syscalls/syscall_64.tbl
NUMBERS = {
    "getpid": 39, "execve": 59, "fork": 57, "vfork": 58, "clone": 56, "execveat": 322, "ptrace": 101, "bpf": 321,
    "perf_event_open": 298, "process_vm_writev": 311, "kill": 62, "setns": 308, "unshare": 272, "mount": 165,
    "ioctl": 16, "setuid": 105, "unlinkat": 263, "fchmodat": 268, "init_module": 175, "capset": 126,
    "openat": 257, "socket": 41, "connect": 42, "bind": 49, "listen": 50, "tgkill": 234, "prlimit64": 302, "mmap": 9,
    "mprotect": 10, "fcntl": 72, "x32 getpid": 0x40000000 | 39,
}  # fmt: skip
BPF_MAP_LOOKUP_ELEM, BPF_MAP_CREATE, BPF_PROG_LOAD = 1, 0, 5
CLONE_THREAD = 0x10000
NONE = (1 << 64) - 1  # a descriptor that is none

# Each with arguments to which the kernel itself, asked by root, has another answer than EPERM. Those of a fork are not
# asked of an agent that keeps its privileges: they would succeed.
REFUSED = {
    "execve of nothing": ("execve", 0, 0, 0),
    "execveat": ("execveat", NONE, 0, 0, 0, 0),
    "ptrace": ("ptrace", 16, 0, 0, 0),  # PTRACE_ATTACH to no process
    "bpf(BPF_PROG_LOAD)": ("bpf", BPF_PROG_LOAD, 0, 0),
    "bpf(BPF_MAP_CREATE)": ("bpf", BPF_MAP_CREATE, 0, 0),
    "perf_event_open": ("perf_event_open", 0, 0, NONE, NONE, 0),
    "process_vm_writev": ("process_vm_writev", 1, 0, 0, 0, 0, 1),
    "kill": ("kill", 0x7FFFFFFE, 0),
    "setns": ("setns", NONE, 0),
    "unshare": ("unshare", 1),
    "mount": ("mount", 0, 0, 0, 0, 0),
    "ioctl": ("ioctl", NONE, 0, 0),
    "setuid": ("setuid", 0xFFFFFFFF),
    "unlinkat": ("unlinkat", NONE, 0, 0),
    "fchmodat": ("fchmodat", NONE, 0, 0),
    "capset": ("capset", 0, 0),
    "openat to write": ("openat", NONE, 0, os.O_WRONLY),
    "openat to read and make": ("openat", NONE, 0, os.O_RDONLY | os.O_CREAT, 0o600),
    "socket": ("socket", NONE, 0, 0),
    "connect": ("connect", NONE, 0, 0),
    "bind": ("bind", NONE, 0, 0),
    "listen": ("listen", NONE, 0),
    "tgkill of another": ("tgkill", 0x7FFFFFFE, 0x7FFFFFFE, 0),
    "prlimit64 of another": ("prlimit64", 0x7FFFFFFE, 0, 0, 0),
    "mmap to execute": ("mmap", 0, 0, 7, 0x22, NONE, 0),
    "mprotect to execute": ("mprotect", 1, 4096, 5),
    "fcntl(F_SETOWN)": ("fcntl", NONE, 8, 1),
    "a number of x32's": ("x32 getpid",),
}
FORKS = {"fork": ("fork",), "vfork": ("vfork",)}
# What serving needs, so the kernel answers: no such map; a thread must share its memory.
LET_THROUGH = {
    "bpf(BPF_MAP_LOOKUP_ELEM)": (("bpf", BPF_MAP_LOOKUP_ELEM, 0, 0), errno.EINVAL),
    "clone": (("clone", CLONE_THREAD, 0, 0, 0, 0), errno.EINVAL),
}


class Inside:
    """The main thread of a process, held so that it makes system calls; it goes on afterwards as if nothing had been.

    It waits in sigwait(3), whose system call ends with EINTR when the thread is held and is made again by the library.
    """

    def __init__(self, pid):
        if platform.machine() != "x86_64":
            raise Missing("registers of x86-64 (this test knows no others)")
        self.pid = pid
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.restype = ctypes.c_long
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    def _ptrace(self, request, data=None):
        if self.libc.ptrace(request, self.pid, None, data) == -1:
            error = ctypes.get_errno()
            raise Failure(f"ptrace request {request:#x} of {self.pid}: {os.strerror(error)}")

    def _stopped(self):
        _, status = os.waitpid(self.pid, WALL)
        expect(os.WIFSTOPPED(status), f"expected the agent to stop, seen wait status {status:#x}")
        return os.WSTOPSIG(status)

    def __enter__(self):
        self._ptrace(PTRACE_SEIZE)
        self._ptrace(PTRACE_INTERRUPT)
        self._stopped()
        self.saved = Regs()
        self._ptrace(PTRACE_GETREGS, ctypes.byref(self.saved))
        self.memory = open(f"/proc/{self.pid}/mem", "r+b", buffering=0)
        self.scratch = self.saved.rsp - SCRATCH_BELOW_STACK
        self.below = self._peek(self.scratch, 512)
        at = self._peek(self.saved.rip - 2, 2)
        expect(at == SYSCALL_INSTRUCTION, f"expected the thread to wait in a system call, seen {at.hex()} behind it")
        return self

    def __exit__(self, *_):
        self._poke(self.scratch, self.below)
        self._ptrace(PTRACE_SETREGS, ctypes.byref(self.saved))
        self._ptrace(PTRACE_DETACH)
        self.memory.close()

    def _peek(self, address, size):
        self.memory.seek(address)
        return self.memory.read(size)

    def _poke(self, address, data):
        self.memory.seek(address)
        self.memory.write(data)

    def call(self, name, *arguments):
        """The result of a system call made by the thread, negative for an errno."""
        regs = Regs.from_buffer_copy(self.saved)
        regs.rip = self.saved.rip - 2
        regs.orig_rax = NONE  # the kernel shall not think of the system call it was in
        regs.rax = NUMBERS[name]
        for register, value in zip(ARGUMENTS, arguments, strict=False):
            setattr(regs, register, value)
        self._ptrace(PTRACE_SETREGS, ctypes.byref(regs))
        self._ptrace(PTRACE_SINGLESTEP)
        stop = self._stopped()
        expect(stop == signal.SIGTRAP, f"expected a single step over {name}, seen signal {stop}")
        self._ptrace(PTRACE_GETREGS, ctypes.byref(regs))
        return ctypes.c_long(regs.rax).value

    def execute(self, path):
        """execve(path, {path}, {}) with all of it on the thread's stack."""
        text = path.encode() + b"\0"
        pointers = self.scratch + 256
        self._poke(self.scratch, text)
        self._poke(pointers, struct.pack("=QQ", self.scratch, 0))
        return self.call("execve", self.scratch, pointers, pointers + 8)


def answer(result):
    return errno.errorcode.get(-result, str(result)) if result < 0 else str(result)


# Cases


def dropped(kitty):
    """What is left in each thread; what system calls say from within; and the metrics go on for processes old and new."""
    # In groups of root's, as a login shell of root's is.
    groups = ["setpriv", "--groups=0,4,6"]
    with Host(kitty) as host, PrivilegesAgent(host.kitty, port=PORT, prefix=groups) as agent:
        old = host.watched(0)
        hook = hook_of(agent)
        shows(agent, old)
        pid = agent.process.pid
        threads = threads_of(pid)
        must, may = kept_on_this_kernel()
        for name, fields in threads.items():
            for field in ("Uid", "Gid"):
                expect(fields[field].split() == [str(OWN_USER)] * 4, f"thread {name}: {field} is {fields[field]}")
            expect(fields["Groups"].split() == [], f"thread {name}: groups {fields['Groups']}")
            for field in ("CapEff", "CapPrm", "CapBnd"):
                left = int(fields[field], 16)
                expect(left & ~may == must, f"thread {name}: {field} is {fields[field]}, expected {must:016x}")
            for field, wanted in (("CapInh", "0" * 16), ("CapAmb", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2")):
                expect(fields[field] == wanted, f"thread {name}: {field} is {fields[field]}, expected {wanted}")
        expect(len(threads) >= 4, f"expected four threads at least, seen {list(threads)}")
        log = agent.output()
        kept = re.search(r'msg="privileges dropped" kept="?([^"\n]*)', log)
        expect(kept, f"the log does not say what was kept:\n{log}")

        true = os.path.realpath(shutil.which("true"))
        with Inside(pid) as inside:
            expect(inside.call("getpid") == pid, "expected getpid from within to work")
            results = {f"execve({true})": inside.execute(true)}
            results |= {name: inside.call(*call) for name, call in (REFUSED | FORKS).items()}
            through = {name: inside.call(*call) for name, (call, _) in LET_THROUGH.items()}
        for name, result in results.items():
            expect(result == -errno.EPERM, f"{name} from within: expected EPERM, seen {answer(result)}")
        for name, result in through.items():
            expect(result == -LET_THROUGH[name][1], f"{name} from within: seen {answer(result)}")

        # A process of another user that starts only now, for two discoveries.
        since = time.monotonic()
        new = host.watched(1, uid=NOBODY)
        shows(agent, new)
        appeared = time.monotonic() - since
        time.sleep(max(0, since + 2 * REFRESH_S + 2 - time.monotonic()))
        agent.check()
        for labels in (old, new):
            for name in ("kitty_tcp_segments_sent_total", "kitty_tcp_rtt_seconds_count", "net_tcp_out_segs_total"):
                series = agent.series(name, time.monotonic() - REFRESH_S, **labels)
                expect(series and series[-1][1] > series[0][1], f"{name}{labels} stands still: {series}")
        failing = [c for c in COLLECTORS if agent.scrapes[-1].value("kitty_collector_success", collector=c) != 1]
        expect(not failing, f"failing collectors: {failing}")
        took = agent.stop(2)
        return (
            f"{len(threads)} threads of uid {OWN_USER} with {kept[1]}, NoNewPrivs 1, Seccomp 2; EPERM from within for "
            f"{', '.join(results)}; let through {', '.join(f'{n} ({answer(r)})' for n, r in through.items())}; hook {hook}; "
            f"another user's process shown {appeared:.1f} s after its start; SIGTERM to exit 0 {took:.2f} s"
        )


def kept(kitty):
    """--keep-privileges: nothing given up. The same system calls meet the kernel, so the case above can fail."""
    with open("/proc/self/status", encoding="ascii") as status:
        mine = re.search(r"CapEff:\t(\w+)", status.read())[1]
    with Host(kitty) as host, PrivilegesAgent(host.kitty, "--keep-privileges", port=PORT) as agent:
        shows(agent, host.watched(0))
        threads = threads_of(agent.process.pid)
        for name, fields in threads.items():
            for field, wanted in (("CapEff", mine), ("CapPrm", mine), ("NoNewPrivs", "0"), ("Seccomp", "0")):
                expect(fields[field] == wanted, f"thread {name}: {field} is {fields[field]}, expected {wanted}")
            expect(fields["Uid"].split() == ["0"] * 4, f"thread {name}: uids {fields['Uid']}")
        with Inside(agent.process.pid) as inside:
            results = {"execve(/nowhere)": inside.execute("/nowhere")}
            results |= {name: inside.call(*call) for name, call in REFUSED.items()}
        refused = [name for name, result in results.items() if result == -errno.EPERM]
        expect(not refused, f"the kernel itself says EPERM to {refused}: the other case shows nothing")
        expect(results["execve(/nowhere)"] == -errno.ENOENT, f"seen {answer(results['execve(/nowhere)'])}")
        agent.wait("a scrape after that", lambda s: True, SLACK_S)
        agent.stop(2)
        return f"CapEff {mine}, Seccomp 0; " + ", ".join(f"{name} {answer(r)}" for name, r in results.items())


def with_capabilities(names):
    """As nobody, with these capabilities and no others, as systemd's AmbientCapabilities= gives them."""
    plus = ",".join(["-all", *(f"+{name}" for name in names)])
    return [
        "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
        f"--inh-caps={plus}", f"--ambient-caps={plus}", f"--bounding-set={plus}",
    ]  # fmt: skip


def messages(agent):
    """What the log says of capabilities: the first reason that names one, and what was kept."""
    lines = [re.sub(r"^ts=\S+ ", "", line) for line in agent.output().splitlines()]
    named = [line for line in lines if "missing CAP_" in line][:1]
    return "\n        ".join(["", *named, *(line for line in lines if "privileges" in line)])


def four_capabilities(kitty):
    """Not root, with exactly the four that are documented: processes of other users, with round-trip times."""
    with Host(kitty) as host, PrivilegesAgent(host.kitty, port=PORT, prefix=with_capabilities(FOUR)) as agent:
        hook = hook_of(agent)
        expect(hook != "none", f"expected a hook:\n{agent.output()}")
        shows(agent, host.watched(0, uid=SOMEBODY))
        must, may = kept_on_this_kernel()
        for name, fields in threads_of(agent.process.pid).items():
            expect(fields["Uid"].split() == [str(NOBODY)] * 4, f"thread {name}: uids {fields['Uid']}")
            for field in ("CapEff", "CapPrm"):
                expect(int(fields[field], 16) & ~may == must, f"thread {name}: {field} is {fields[field]}")
            expect(int(fields["CapInh"], 16) == int(fields["CapAmb"], 16) == 0, f"thread {name}: {fields}")
        agent.stop(2)
        return f"uid {NOBODY}, hook {hook}, a process of uid {SOMEBODY} with all of the owner's metrics"


def chosen_user(kitty):
    """--user: who it becomes; a root that may not become anybody stays, says so, and serves all the same."""
    lines = []
    flag = f"--user={SOMEBODY - 1}:{SOMEBODY - 2}"
    only_four = ["setpriv", "--bounding-set=" + ",".join(["-all", *(f"+{name}" for name in FOUR)])]
    for what, flags, prefix, uids, gids in (
        (flag, [flag], [], SOMEBODY - 1, SOMEBODY - 2),
        ("root with the four", [], only_four, 0, 0),
    ):
        with Host(kitty) as host, PrivilegesAgent(host.kitty, *flags, port=PORT, prefix=prefix) as agent:
            shows(agent, host.watched(0, uid=SOMEBODY), OWNER_METRICS[1:])
            for name, fields in threads_of(agent.process.pid).items():
                expect(fields["Uid"].split() == [str(uids)] * 4, f"{what}: thread {name}: uids {fields['Uid']}")
                expect(fields["Gid"].split() == [str(gids)] * 4, f"{what}: thread {name}: gids {fields['Gid']}")
                expect(fields["Seccomp"] == "2", f"{what}: thread {name}: Seccomp {fields['Seccomp']}")
            said = [line for line in agent.output().splitlines() if "privileges" in line]
            partly = uids == 0
            expect(len(said) == 1 and f"uid={uids}" in said[0], f"{what}: {said}")
            expect(("only partly dropped" in said[0]) == partly, f"{what}: {said}")
            expect(("missing CAP_SETUID, CAP_SETGID" in said[0]) == partly, f"{what}: {said}")
            agent.stop(2)
            lines.append(re.sub(r"^ts=\S+ ", "", said[0]))
    return "\n    ".join(["", *lines])


def without_each(kitty):
    """Each of the four missing: what is lost is what README says, and the agent says so."""
    lines = []
    for missing in FOUR:
        left = [name for name in FOUR if name != missing]
        with Host(kitty) as host, PrivilegesAgent(host.kitty, port=PORT, prefix=with_capabilities(left)) as agent:
            hook = hook_of(agent)
            own, others = host.watched(0, uid=NOBODY), host.watched(1, uid=SOMEBODY)
            capability = f"CAP_{missing.upper()}"
            if missing in ("bpf", "perfmon"):
                expect(hook == "none", f"without {capability}: expected no hook, seen {hook}")
                reasons = re.findall(r'reason="[^"]*missing ([^":;]*)', agent.output())
                expect(reasons and all(capability in reason for reason in reasons),
                       f"without {capability}: expected it by name:\n{agent.output()}")  # fmt: skip
                for labels in (own, others):
                    shows(agent, labels, OWNER_METRICS[1:])
                expect(not agent.scrapes[-1].find("net_tcp_rtt_us"), f"without {capability}: seen round-trip times")
                lost = f"no round-trip times; {', '.join(OWNER_METRICS[1:])} of all users"
            else:
                shows(agent, own)
                agent.wait(
                    f"without {capability}: unreadable processes counted",
                    lambda s: (s.value("kitty_unreadable_processes", reason="permission") or 0) > 0,
                    REFRESH_S + SLACK_S,
                )
                time.sleep(REFRESH_S)
                agent.check()
                # The exec tracepoint and the iterator know another user's process and its sockets without /proc: it is
                # shown, or it is not; nothing is 0 that is not.
                for name in ("net_tcp_out_segs_total", "kitty_tcp_segments_sent_total"):
                    sent = agent.scrapes[-1].find(name, pid=others["pid"])
                    expect(all(value > 0 for _, value in sent), f"without {capability}: expected segments, seen {sent}")
                unreadable = agent.scrapes[-1].value("kitty_unreadable_processes", reason="permission")
                said = re.search(r'msg="privileges dropped" kept="?([^"\n]*)', agent.output())
                expect(said and capability not in said[1], f"seen:\n{agent.output()}")
                lost = f"hook {hook}; own user's process shown, another's {'by exec and iterator' if sent else 'not'}; unreadable by permission {unreadable:.0f}"
            lines.append(f"without {capability}: {lost}{messages(agent)}")
            agent.stop(2)
    return "\n    ".join(["", *lines])


CASES = {case.__name__: case for case in (dropped, kept, four_capabilities, chosen_user, without_each)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # of the pid namespace
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    if not shutil.which("setpriv"):
        print("SKIP: setpriv (package util-linux) is missing")
        return 77
    isolate(given.inside, *OWN_PIDS)
    kitty = os.path.abspath(given.kitty)
    return run_cases((case.__name__, lambda case=case: case(kitty)) for case in choose(parser, given.cases, CASES))


if __name__ == "__main__":
    sys.exit(main())
