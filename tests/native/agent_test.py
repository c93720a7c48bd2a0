#!/usr/bin/env python3
"""The agent on this machine's own kernel, whatever hooks that has: real loopback traffic, no faults injected.

    agent_test.py KITTY

Needs root. Exit status 0 when every case holds; each case prints its figures.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import Agent, Lab, expect, free_port, median, run, run_cases, show  # noqa: E402

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
    cases = [ladder, every_rung, without_hook, unprivileged, empty_chroot, hint, taken_port, usage]
    return run_cases((case.__name__, lambda case=case: case(kitty)) for case in cases)


if __name__ == "__main__":
    sys.exit(main())
