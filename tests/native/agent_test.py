#!/usr/bin/env python3
"""The agent on this machine's own kernel, whatever hooks that has: real loopback traffic, no faults injected.

    agent_test.py KITTY

Needs root. Exit status 0 when every case holds; each case prints its figures.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import Agent, Lab, Missing, expect, free_port, median, run, run_cases, show  # noqa: E402

NOBODY = 65534
LAB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab.py")
REFRESH_S = 5
SLACK_S = 10  # for a machine that is busy with other tests
RUNGS = [
    "kprobe/tcp_rtt_estimator",
    "fentry/tcp_rtt_estimator",
    "fentry/tcp_ack_update_rtt",
    "kprobe/tcp_ack_update_rtt",
    "tp_btf/tcp_probe",
]
CONDITIONS = re.compile("kitty_process_|kitty_rtt_hook_info")
BUSY = "while :; do :; done"
OWNER_METRICS = ("net_tcp_rtt_us", "net_tcp_retransmits_total", "net_tcp_out_segs_total", "net_tcp_tx_queue_bytes")


class Traffic:
    """An echo server, not watched, and a watched sender, in a namespace of their own with traffic over its lo."""

    def __init__(self, lab, uid=None, program=LAB):
        """`program`: lab.py, or a copy of it that `uid` may read."""
        self.lab = lab
        self.program = program
        self.namespace = lab.namespace("lo")
        lab.start_echo(self.namespace, "127.0.0.1", 7000)
        self.uid = uid
        self.sender = None

    def start(self):
        command = ["/usr/bin/python3", "-IS", self.program, "send", "127.0.0.1", "7000", "--interval", "0.005"]
        if self.uid is not None:
            command = ["setpriv", f"--reuid={self.uid}", "--clear-groups", *command]
        self.sender = self.lab.start(self.namespace, *command, KITTY_WATCH="1", RANK="7", JOB_NAME="native")
        self.labels = {"pid": str(self.sender.pid), "rank": "7", "job": "native"}
        return self.labels

    def stop(self):
        self.lab.stop(self.sender)


def hook_of(agent):
    scrape = agent.wait("a first scrape", lambda s: s.find("kitty_rtt_hook_info"), SLACK_S)
    [(labels, value)] = scrape.find("kitty_rtt_hook_info")
    expect(value == 1, f"expected kitty_rtt_hook_info 1, seen {value}")
    return labels["hook"]


def ladder(kitty):
    """auto takes a rung, says so, and says why not each one before it; the RTT of loopback is sane."""
    with Lab() as lab, Agent(kitty, port=free_port()) as agent:
        traffic = Traffic(lab)
        hook = hook_of(agent)
        expect(hook in RUNGS, f"expected one of {RUNGS}, seen {hook}:\n{agent.output()}")
        log = agent.output()
        expect(re.search(f'msg="rtt hook taken[^"]*" hook={hook}', log), f"the log does not name {hook}:\n{log}")
        for refused in RUNGS[: RUNGS.index(hook)]:
            expect(
                re.search(f'msg="rtt hook not taken" hook={refused} reason="[^"]+', log),
                f"the log does not say why not {refused}:\n{log}",
            )

        labels = traffic.start()
        started = time.monotonic()
        for name in OWNER_METRICS:
            agent.wait(f"{name}{labels}", lambda s, n=name: s.value(n, **labels) is not None, REFRESH_S + SLACK_S)
        appeared = time.monotonic() - started
        since = time.monotonic()
        time.sleep(5)
        rtt = agent.series("net_tcp_rtt_us", since, **labels)
        expect(5 <= median(rtt) <= 5_000, f"expected 5..5000 us on loopback, seen {show(rtt, since)}")
        segments = agent.series("net_tcp_out_segs_total", since, **labels)
        expect(segments[-1][1] > segments[0][1], f"expected segments to rise, seen {show(segments, since)}")
        own = agent.scrapes[-1].value("kitty_tcp_segments_sent_total", **labels)
        whole = agent.scrapes[-1].value("net_tcp_out_segs_total", **labels)
        expect(0 < own < whole, f"expected own segments {own} between 0 and the namespace's {whole}")

        traffic.stop()
        stopped = time.monotonic()
        agent.wait("the dead process's series gone", lambda s: not s.find("net_tcp_out_segs_total", **labels),
                   REFRESH_S + SLACK_S)  # fmt: skip
        left = time.monotonic() - stopped
        took = agent.stop(2)
        return (
            f"hook {hook}, rtt {median(rtt):.0f} us, shown after {appeared:.1f} s, gone after {left:.1f} s, "
            f"SIGTERM to exit 0 {took:.2f} s"
        )


def every_rung(kitty):
    """Each rung asked for by name is taken or refused with a reason, and the agent runs either way."""
    seen = []
    for rung in RUNGS:
        with Agent(kitty, f"--rtt-hook={rung}", port=free_port()) as agent:
            hook = hook_of(agent)
            expect(hook in (rung, "none"), f"asked for {rung}, seen {hook}")
            if hook == "none":
                reason = re.search(f'hook={rung} reason="([^"]+)', agent.output())
                expect(reason, f"no reason given why not {rung}:\n{agent.output()}")
                seen.append(f"{rung}: {reason[1]}")
            else:
                seen.append(f"{rung}: taken")
            agent.stop(2)
    return "\n    ".join(["", *seen])


def without_hook(kitty):
    """--rtt-hook=none: what procfs tells is served, round-trip times are not."""
    with Lab() as lab, Agent(kitty, "--rtt-hook=none", port=free_port()) as agent:
        labels = Traffic(lab).start()
        expect(hook_of(agent) == "none", "expected hook none")
        for name in OWNER_METRICS[1:]:
            agent.wait(f"{name}{labels}", lambda s, n=name: s.value(n, **labels) is not None, REFRESH_S + SLACK_S)
        scrape = agent.scrapes[-1]
        expect(not scrape.find("net_tcp_rtt_us"), f"expected no RTT, seen {scrape.find('net_tcp_rtt_us')}")
        agent.stop(2)
        return f"{scrape.value('net_tcp_out_segs_total', **labels):.0f} segments out, no rtt"


def unprivileged(kitty):
    """As nobody: starts, names the missing capability, and serves what it can of its own user's processes."""
    with Lab() as lab, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        binary = shutil.copy(kitty, folder)  # where nobody may look
        nobody = ["setpriv", f"--reuid={NOBODY}", "--clear-groups"]
        with Agent(binary, port=free_port(), prefix=nobody) as agent:
            labels = Traffic(lab, uid=NOBODY, program=shutil.copy(LAB, folder)).start()
            expect(hook_of(agent) == "none", "expected hook none")
            log = agent.output()
            expect("CAP_BPF" in log, f"expected the missing capability by name:\n{log}")
            for name in OWNER_METRICS[1:]:
                agent.wait(f"{name}{labels}", lambda s, n=name: s.value(n, **labels) is not None, REFRESH_S + SLACK_S)
            reason = re.search('hook=auto reason="([^"]+)', log)
            expect(reason, f"expected a reason:\n{log}")
            agent.stop(2)
            return reason[1]


def empty_chroot(kitty):
    """In a folder that holds nothing but the binary, /proc and /sys."""
    mounted = []
    with Lab() as lab, tempfile.TemporaryDirectory() as folder:
        shutil.copy(kitty, os.path.join(folder, "kitty"))
        try:
            for name in ("proc", "sys"):
                os.mkdir(os.path.join(folder, name))
                run("mount", "--bind", f"/{name}", os.path.join(folder, name))
                mounted.append(os.path.join(folder, name))
            with Agent("/kitty", port=free_port(), prefix=["chroot", folder]) as agent:
                labels = Traffic(lab).start()
                hook = hook_of(agent)
                expect(hook in RUNGS, f"expected a hook, seen {hook}:\n{agent.output()}")
                for name in OWNER_METRICS:
                    agent.wait(
                        f"{name}{labels}", lambda s, n=name: s.value(n, **labels) is not None, REFRESH_S + SLACK_S
                    )
                agent.stop(2)
        finally:
            for path in reversed(mounted):
                run("umount", path)
    return f"hook {hook}, all of the owner's metrics"


def hint(kitty):
    """Alone in a pid namespace, so that nothing is watched: one hint of how to watch something."""
    with Agent(kitty, port=free_port(), prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]) as agent:
        hook_of(agent)
        deadline = time.monotonic() + SLACK_S
        while "processes listed" not in agent.output() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        log = agent.output()
        hints = re.findall('msg="(nothing is watched yet[^"]*)', log)
        expect(len(hints) == 1 and "KITTY_WATCH=1" in hints[0], f"expected one hint how to watch something:\n{log}")
        return hints[0]


@contextlib.contextmanager
def watched(rank, program):
    """A watched process that runs a program of sh(1); yields it with its labels."""
    process = subprocess.Popen(
        ["sh", "-c", program],
        env={"PATH": os.environ["PATH"], "KITTY_WATCH": "1", "RANK": rank, "JOB_NAME": "native"},
    )
    try:
        yield process, {"pid": str(process.pid), "rank": rank, "job": "native"}
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_about(agent, read, name, labels, more):
    """The agent's counter has passed what read() gave before, then grows by `more`, and is never ahead of read()."""
    def has(seconds):
        scrape = agent.wait(f"{name}{labels} at {seconds} s", lambda s: s.find(name, **labels)
                            and s.value(name, **labels) >= seconds, 60)  # fmt: skip
        return scrape.value(name, **labels)

    first = has(read())
    last = has(first + more)
    ahead = read()
    expect(last <= ahead, f"expected {name}{labels} at most {ahead}, seen {last}")
    values = [value for _, value in agent.series(name, 0, **labels)]
    expect(values == sorted(values), f"expected {name}{labels} not to fall, seen {values}")
    return first, last


def cpu_and_state(kitty):
    """A busy process's CPU time is the kernel's own; one that is stopped is said to be."""
    name = "kitty_process_cpu_seconds_total"
    with Agent(kitty, "--rtt-hook=none", port=free_port(), wanted=CONDITIONS) as agent:
        with watched("1", BUSY) as (busy, labels), watched("2", "exec sleep 600") as (_, idle):
            first, last = is_about(agent, lambda: cpu_seconds(busy.pid), name, labels, 1)

            def is_in(state):
                agent.wait(
                    f"state {state}",
                    lambda s: [found["state"] for found, _ in s.find("kitty_process_state_info", **labels)] == [state],
                    SLACK_S,
                )

            is_in("running")
            busy.send_signal(signal.SIGSTOP)
            is_in("stopped")
            stood = agent.scrapes[-1].value(name, **labels)
            exact = cpu_seconds(busy.pid)
            expect(stood == exact, f"expected {exact} s of a stopped process, seen {stood}")
            busy.send_signal(signal.SIGCONT)
            is_in("running")
            scrape = agent.wait(f"{name}{idle}", lambda s: s.find(name, **idle), REFRESH_S + SLACK_S)
            slept = scrape.value(name, **idle)
            expect(slept < 1, f"expected under 1 s of CPU of a sleeper, seen {slept}")
        agent.stop(2)
    return f"{last - first:.2f} s of CPU more, running, stopped, running"


def remove_cgroup(folder):
    """Once those that were in it are gone."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
            return
        time.sleep(0.1)


@contextlib.contextmanager
def limited_cgroup():
    """A cgroup with a tenth of a CPU; yields its folder and how long it was throttled, as a function, in seconds."""
    place = None
    with open("/proc/self/mountinfo") as file:
        for line in file:
            fields, _, kind = (part.split() for part in line.partition(" - "))
            if kind[0] == "cgroup" and "cpu" in kind[2].split(","):
                place = (fields[4], "cpu.cfs_quota_us", "10000", "throttled_time", 1e9)
                break
            with contextlib.suppress(OSError):
                if kind[0] == "cgroup2" and "cpu" in open(f"{fields[4]}/cgroup.subtree_control").read().split():
                    place = (fields[4], "cpu.max", "10000 100000", "throttled_usec", 1e6)
    if place is None:
        raise Missing("a cgroup hierarchy with the cpu controller")
    mount, quota_file, quota, name, per_second = place
    folder = f"{mount}/kitty-test-{os.getpid()}"
    try:
        os.mkdir(folder)
    except OSError as error:
        raise Missing(f"a cgroup hierarchy that may be written to ({error})") from None
    try:
        with open(f"{folder}/{quota_file}", "w") as file:
            file.write(quota)

        def throttled():
            with open(f"{folder}/cpu.stat") as file:
                return int(dict(line.split() for line in file)[name]) / per_second

        yield folder, throttled
    finally:
        remove_cgroup(folder)


def throttled_by_cgroup(kitty):
    """A busy process under a quota: the time for which its cgroup was throttled is the kernel's own."""
    name = "kitty_process_cgroup_throttled_seconds_total"
    with (
        limited_cgroup() as (folder, throttled),
        Agent(kitty, "--rtt-hook=none", port=free_port(), wanted=CONDITIONS) as agent,
        watched("1", f"echo $$ > {folder}/cgroup.procs && exec sh -c '{BUSY}'") as (_, labels),
    ):
        first, last = is_about(agent, throttled, name, labels, 1)
        waited = agent.scrapes[-1].value("kitty_process_cgroup_pressure_seconds_total", resource="cpu", **labels)
        agent.stop(2)
    return f"{last - first:.2f} s more in {folder}; CPU pressure {waited} s"


def in_a_cgroup_namespace(kitty):
    """An agent whose cgroup namespace is its own, as a container's, beside a rank: the rank's CPU pressure is told by
    the host's hierarchy, which is mounted, too."""
    name = "kitty_process_cgroup_pressure_seconds_total"
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file if " - cgroup2 " in line]
    if not mounts or not os.path.exists(f"{mounts[0]}/cpu.pressure"):
        raise Missing("a cgroup2 hierarchy with pressure accounting (psi=1)")
    made = [f"{mounts[0]}/kitty-test-{os.getpid()}"]
    made += [f"{made[0]}/agent", f"{made[0]}/rank"]
    with tempfile.TemporaryDirectory() as own, contextlib.ExitStack() as stack:
        for folder in made:
            try:
                os.mkdir(folder)
            except OSError as error:
                raise Missing(f"a cgroup2 hierarchy that may be written to ({error})") from None
            stack.callback(remove_cgroup, folder)
        # Two that want one CPU: one of them always waits.
        cpu = min(os.sched_getaffinity(0))
        busy = f"taskset -c {cpu} sh -c '{BUSY}'"
        other = f"env -u KITTY_WATCH setpriv --pdeathsig KILL {busy}"
        _, labels = stack.enter_context(watched("1", f"echo $$ > {made[2]}/cgroup.procs; {other} & exec {busy}"))
        inside = f"""unshare --cgroup --mount sh -c 'mount -t cgroup2 none {own} && exec "$@"'"""
        prefix = ["sh", "-c", f'echo $$ > {made[1]}/cgroup.procs && exec {inside} "$@"', "sh", "sh"]
        agent = stack.enter_context(
            Agent(kitty, "--rtt-hook=none", port=free_port(), prefix=prefix, wanted=CONDITIONS)
        )

        def waited():
            with open(f"{made[2]}/cpu.pressure") as file:
                return int(re.search("some .*total=([0-9]+)", file.read())[1]) / 1e6

        first, last = is_about(agent, waited, name, {**labels, "resource": "cpu"}, 1)
        agent.stop(2)
    return f"{last - first:.2f} s more in {made[2]}"


def taken_port(kitty):
    """The default port is taken: one line that names the port and its other usual owner, exit status 1."""
    listen = "import socket, sys; s = socket.create_server(('', 9100)); print('ready', flush=True); sys.stdin.read()"
    with Lab() as lab:
        inside = ["ip", "netns", "exec", lab.namespace("taken")]
        holder = subprocess.Popen(
            [*inside, sys.executable, "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        holder.stdout.readline()
        second = subprocess.run([*inside, kitty], capture_output=True, text=True, timeout=30)
        holder.stdin.close()
        holder.wait()
    line = second.stderr.strip().splitlines()[-1]
    expect(second.returncode == 1, f"expected exit status 1, seen {second.returncode}: {second.stderr}")
    expect("':9100'" in line and "Address already in use" in line and "node_exporter" in line, f"seen: {line}")
    return line


def usage(kitty):
    """--version and --help print and end; a wrong flag is exit status 3 with the flag named."""
    version = subprocess.run([kitty, "--version"], capture_output=True, text=True, timeout=30)
    expect(re.fullmatch(r"kitty \d+\.\d+\.\d+\n", version.stdout) and version.returncode == 0, f"seen {version}")
    helped = subprocess.run([kitty, "--help"], capture_output=True, text=True, timeout=30)
    expect("--web.listen-address" in helped.stdout and helped.returncode == 0, f"seen {helped}")
    wrong = subprocess.run([kitty, "--web.port=1"], capture_output=True, text=True, timeout=30)
    expect(wrong.returncode == 3 and "--web.port=1" in wrong.stderr, f"seen {wrong}")
    return f"{version.stdout.strip()}; {wrong.stderr.strip()}"


def main():
    kitty = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    cases = [
        ladder, every_rung, without_hook, cpu_and_state, throttled_by_cgroup, in_a_cgroup_namespace, unprivileged,
        empty_chroot, hint, taken_port, usage,
    ]  # fmt: skip
    return run_cases((case.__name__, lambda case=case: case(kitty)) for case in cases)


if __name__ == "__main__":
    sys.exit(main())
