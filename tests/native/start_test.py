#!/usr/bin/env python3
"""How the agent starts and ends in odd surroundings: ports that take privileges, closed standard streams, a log that
nobody reads, a seccomp filter.

    start_test.py KITTY

Needs root. Runs in network and pid namespaces of its own. Exit status 0 when every case holds; each prints what it saw.
"""

import argparse
import ctypes
import errno
import fcntl
import json
import os
import platform
import re
import select
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import OWN_PIDS, Agent, Failure, Missing, expect, fetch, isolate, parse_exposition, run_cases  # noqa: E402

PORT = 9440
LOW_PORT = 80
SLACK_S = 20
STOP_LIMIT_S = 2  # of SIGTERM
OTHER_USER = 61463  # no other program's
FOUR = ("bpf", "perfmon", "sys_ptrace", "dac_read_search")


def value_of(port, name):
    """The value of the one sample of that name that is served."""
    [(_, _, value)] = [sample for sample in parse_exposition(fetch("127.0.0.1", port, "/metrics")) if sample[0] == name]
    return value


def wait_until_served(process, port, name):
    """The value of a sample, as soon as there are metrics."""
    deadline = time.monotonic() + SLACK_S
    while time.monotonic() < deadline:
        expect(process.poll() is None, f"the agent ended with status {process.returncode}")
        try:
            return value_of(port, name)
        except (OSError, Failure):  # not listening yet; 503 until there are metrics
            time.sleep(0.05)
    raise Failure(f"expected metrics within {SLACK_S} s")


def stop(process):
    """SIGTERM; how long the end took."""
    started = time.monotonic()
    process.terminate()
    try:
        status = process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Failure(f"expected an end within {STOP_LIMIT_S} s of SIGTERM, seen none") from None
    expect(status == 0, f"expected status 0 after SIGTERM, seen {status}")
    return time.monotonic() - started


class Started:
    """A process that does not outlive the block."""

    def __init__(self, command, **how):
        self.process = subprocess.Popen(command, **how)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def check(kitty, *flags, prefix=()):
    """What `kitty check` says, as JSON has it."""
    done = subprocess.run([*prefix, kitty, "check", "--json", *flags], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)  # fmt: skip
    return json.loads(done.stdout)


def as_user(*capabilities):
    plus = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return [
        "setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups",
        f"--inh-caps={plus}", f"--ambient-caps={plus}", f"--bounding-set={plus}",
    ]  # fmt: skip


# Cases


def low_port(kitty):
    """A port below 1024: served on by root, who gives the privilege up, and by a user who has it; check says which."""
    seen = []
    for who, prefix, served in (
        ("root", [], True),
        ("a user with CAP_NET_BIND_SERVICE", as_user(*FOUR, "net_bind_service"), True),
        ("a user without", as_user(*FOUR), False),
    ):
        said = check(kitty, f"--web.listen-address=127.0.0.1:{LOW_PORT}", prefix=prefix)
        works = f"serving on 127.0.0.1:{LOW_PORT}" in said["works"]
        expect(works == served, f"{who}: check says {said['works']} and not {said['does_not']}")
        expect(("net_bind_service" in said["fix"].lower()) == (not served), f"{who}: to fix: {said['fix']}")
        if not served:
            done = subprocess.run([*prefix, kitty, f"--web.listen-address=127.0.0.1:{LOW_PORT}"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=SLACK_S)  # fmt: skip
            expect(done.returncode == 1 and "CAP_NET_BIND_SERVICE" in done.stderr, f"{who}: {done}")
            seen.append(f"{who}: {done.stderr.strip()}")
            continue
        with Agent(kitty, port=LOW_PORT, prefix=prefix) as agent:
            agent.wait("a scrape", lambda s: s.find("kitty_rtt_hook_info"), SLACK_S)
            with open(f"/proc/{agent.process.pid}/status") as status:
                left = int(re.search(r"CapPrm:\t(\w+)", status.read())[1], 16)
            expect(left >> 10 & 1 == 0, f"{who}: CAP_NET_BIND_SERVICE is kept: {left:016x}")
            agent.stop(STOP_LIMIT_S)
            seen.append(f"{who}: served")
    return "; ".join(seen)


def port_zero(kitty):
    """Port 0: the log says which it got, and it answers there."""
    for flag, host in (("127.0.0.1:0", "127.0.0.1"), (":0", "")):
        with Started([kitty, f"--web.listen-address={flag}", "--rtt-hook=none"], stdin=subprocess.DEVNULL,
                     stderr=subprocess.PIPE, text=True) as agent:  # fmt: skip
            for line in agent.stderr:
                if found := re.search(r"msg=serving address=(\S*):(\d+) ", line):
                    break
            expect(found[1] == host and found[2] != "0", f"{flag}: seen {line}")
            port = int(found[2])
            expect(fetch("127.0.0.1", port, "/-/healthy").startswith("kitty"), f"no answer on {port}")
            stop(agent)
    return line.strip()


def closed_streams(kitty):
    """Started with 0, 1 and 2 closed: nothing that is opened later becomes one, and it serves."""
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", kitty, f"--web.listen-address=127.0.0.1:{PORT}"]
    with Started(command) as agent:
        wait_until_served(agent, PORT, "kitty_watched_processes")
        streams = [os.readlink(f"/proc/{agent.pid}/fd/{number}") for number in range(3)]
        expect(streams == ["/dev/null"] * 3, f"descriptors 0 to 2 are {streams}")
        took = stop(agent)
    return f"0 to 2 are {streams[0]}, SIGTERM to exit 0 {took:.2f} s"


class FullPipe:
    """A pipe that takes nothing any more; `with FullPipe() as writer` for somebody's stderr."""

    def __enter__(self):
        self.reader, self.writer = os.pipe()
        poll = select.poll()
        poll.register(self.writer, select.POLLOUT)
        while poll.poll(0):
            os.write(self.writer, bytes(select.PIPE_BUF))
        return self.writer

    def __exit__(self, *_):
        os.close(self.reader)
        os.close(self.writer)


def full_stderr(kitty):
    """Nobody reads the log: it starts, says how many lines were lost, and ends at once; also where it cannot start."""
    with FullPipe() as stderr:
        # The pipe's own flags: others who write there are not to be told EAGAIN.
        before = fcntl.fcntl(stderr, fcntl.F_GETFL)
        with Started([kitty, f"--web.listen-address=127.0.0.1:{PORT}", "--log.level=debug"], stdin=subprocess.DEVNULL,
                     stderr=stderr) as agent:  # fmt: skip
            lost = wait_until_served(agent, PORT, "kitty_log_lines_dropped_total")
            expect(lost > 0, "no line is said to be lost")
            second = subprocess.run([kitty, f"--web.listen-address=127.0.0.1:{PORT}"], stdin=subprocess.DEVNULL,
                                    stderr=stderr, timeout=SLACK_S)  # fmt: skip
            expect(second.returncode == 1, f"on a taken port: expected status 1, seen {second.returncode}")
            wrong = subprocess.run([kitty, "--web.port=1"], stdin=subprocess.DEVNULL, stderr=stderr, timeout=SLACK_S)
            expect(wrong.returncode == 3, f"by a wrong flag: expected status 3, seen {wrong.returncode}")
            took = stop(agent)
        expect(fcntl.fcntl(stderr, fcntl.F_GETFL) == before, "the pipe's flags are others than before")
    return f"{lost:.0f} lines lost, SIGTERM to exit 0 {took:.2f} s"


def start_time(kitty):
    """When it started, to less than a second: two agents one after the other are two."""
    times = []
    for _ in range(2):
        now = time.time()
        time.sleep((0.2 - now) % 1)  # far from the next second's begin: cut down to seconds it would lie before `since`
        since = time.time()
        with Started([kitty, f"--web.listen-address=127.0.0.1:{PORT}", "--rtt-hook=none"], stdin=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL) as agent:  # fmt: skip
            times.append(wait_until_served(agent, PORT, "process_start_time_seconds"))
            until = time.time()
            expect(since - 0.001 <= times[-1] <= until, f"started at {times[-1]}, expected {since} to {until}")
            stop(agent)
    expect(times[0] != times[1], f"both at {times[0]}")
    return f"{times[0]}, {times[1]}"


# linux/seccomp.h, linux/filter.h, linux/prctl.h; numbers of x86-64
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
BPF, PERF_EVENT_OPEN = 321, 298


def under_seccomp(err, command):
    """Becomes the command under a filter that answers bpf(2) and perf_event_open(2) with an errno."""
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD_WORD, 0, 0, 0),
            (JUMP_EQUAL, 1, 0, BPF),
            (JUMP_EQUAL, 0, 1, PERF_EVENT_OPEN),
            (RETURN, 0, 0, RET_ERRNO | err),
            (RETURN, 0, 0, RET_ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)):
        if libc.prctl(*arguments) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execv(command[0], command)


def seccomp(kitty):
    """A profile that answers EPERM, EINVAL, ENOSYS or what it likes: log and check name seccomp, whichever it is."""
    if platform.machine() != "x86_64":
        raise Missing("system call numbers of x86-64 (this test knows no others)")
    seen = []
    for err in (errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        name = errno.errorcode[err]
        prefix = [sys.executable, os.path.abspath(__file__), "--under-seccomp", str(err)]
        said = check(kitty, f"--web.listen-address=127.0.0.1:{PORT}", prefix=prefix)
        [hooks] = [row["detail"] for row in said["checks"] if row["what"] == "hooks"]
        expect("a seccomp filter" in hooks, f"{name}: check says {hooks}")
        expect("seccomp" in said["fix"], f"{name}: to fix: {said['fix']}")
        with Agent(kitty, port=PORT, prefix=prefix) as agent:
            agent.wait("a scrape", lambda s: s.find("kitty_rtt_hook_info", hook="none"), SLACK_S)
            reason = re.search(r'msg="rtt hook not taken".* reason="(.*)"', agent.output())
            expect(reason and "a seccomp filter" in reason[1], f"{name}: the log says:\n{agent.output()}")
            agent.stop(STOP_LIMIT_S)
        seen.append(f"{name}: {reason[1]}")
    return "\n    ".join(["", *seen])


def main():
    if sys.argv[1:2] == ["--under-seccomp"]:
        under_seccomp(int(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # of the namespaces
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    isolate(given.inside, "--net", *OWN_PIDS)
    kitty = os.path.abspath(given.kitty)
    cases = [low_port, port_zero, closed_streams, full_stderr, start_time, seccomp]
    return run_cases((case.__name__, lambda case=case: case(kitty)) for case in cases)


if __name__ == "__main__":
    sys.exit(main())
