#!/usr/bin/env python3
"""The agent and what a host may be like: `kitty check`, no BTF, lockdown, and nothing left behind in the kernel.

    host.py KITTY [--expect-hook HOOK] [--cases check,clean_stop,killed,no_btf,memlock,bpf_disabled,paranoid,lockdown]

Runs as root in a VM of its own (vm/run): lockdown cannot be lifted again, and comes last. memlock, bpf_disabled and
paranoid are the rows of docs/OPERATING.md's table of what kernels ask besides the four capabilities. Exit status 0 when
every case holds.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the checkout stays clean
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "native")]
import bpf_objects  # noqa: E402
from lab import Agent, Failure, Lab, Missing, choose, expect, run, run_cases  # noqa: E402
from privileges_test import BPF, FOUR, kept_on_this_kernel, threads_of, with_capabilities  # noqa: E402

BTF = "/sys/kernel/btf"
LOCKDOWN = "/sys/kernel/security/lockdown"
STARTED_S = 60  # on an emulated CPU
GONE_S = 10  # the kernel frees programs after a grace period
NEXT_ID = {
    "programs": bpf_objects.PROG_GET_NEXT_ID,
    "maps": bpf_objects.MAP_GET_NEXT_ID,
    "links": bpf_objects.LINK_GET_NEXT_ID,
}
WATCHED = {"KITTY_WATCH": "1", "RANK": "0", "JOB_NAME": "vm"}


def bpf_ids():
    """{kind: the numbers of the kernel's BPF objects}."""
    return {kind: set(bpf_objects.ids(command)) for kind, command in NEXT_ID.items()}


def wait_gone(before):
    """Until the kernel holds no more than it did."""
    deadline = time.monotonic() + GONE_S
    while any((left := {kind: sorted(numbers - before[kind]) for kind, numbers in bpf_ids().items()}).values()):
        if time.monotonic() > deadline:
            raise Failure(f"left in the kernel: {left}")
        time.sleep(0.2)


def hook_of(agent):
    """The hook in use, once a scrape shows it."""
    scrape = agent.wait("a first scrape", lambda scrape: scrape.find("kitty_rtt_hook_info"), STARTED_S)
    [(labels, _)] = scrape.find("kitty_rtt_hook_info")
    return labels["hook"]


def kernel_version():
    """(6, 1) of 6.1.0-57-amd64."""
    return tuple(int(number) for number in platform.release().split(".")[:2])


def write_sysctl(name, value):
    """What it was before."""
    path = f"/proc/sys/{name.replace('.', '/')}"
    try:
        with open(path, "r+", encoding="ascii") as file:
            before = file.read().strip()
            file.write(value)
    except FileNotFoundError:
        raise Missing(path) from None
    return before


def reasons(agent):
    """{hook: why it was not taken}."""
    return dict(re.findall(r'msg="rtt hook not taken" hook=(\S+) reason="([^"]*)"', agent.output()))


def watched_shows(agent, names):
    """Until a watched process of the host's shows these metrics; its traffic is its own."""
    with Lab() as lab:
        left, right = lab.namespace("host-l"), lab.namespace("host-r")
        lab.join(left, ["10.80.0.1/24"], right, ["10.80.0.2/24"])
        lab.start_echo(right, "10.80.0.2", 7000)
        sender = lab.start_send(left, "10.80.0.2", 7000, 0.1, **WATCHED)
        for name in names:
            agent.wait(name, lambda scrape: (scrape.value(name, pid=str(sender.pid)) or 0) > 0, STARTED_S)


class Host:
    def __init__(self, kitty, expected_hook):
        self.kitty = kitty
        self.expected_hook = expected_hook

    def check(self):
        """Every hook tried, and none left; what it says is what the agent then does."""
        before = bpf_ids()
        done = subprocess.run([self.kitty, "check", "--json"], capture_output=True, text=True, timeout=STARTED_S)
        expect(done.returncode in (0, 1), f"exit status {done.returncode}: {done.stdout}{done.stderr}")
        said = json.loads(done.stdout)
        wait_gone(before)
        with Agent(self.kitty) as agent:
            hook = hook_of(agent)
            agent.stop(10)
        expect(json.dumps(hook) in done.stdout, f"the agent took {hook}, check said {done.stdout}")
        expect(not self.expected_hook or hook == self.expected_hook, f"expected {self.expected_hook}, seen {hook}")
        return f"exit status {done.returncode}, {hook}, {len(said)} fields"

    def stops(self, end):
        before = bpf_ids()
        with Agent(self.kitty) as agent:
            hook = hook_of(agent)
            during = {kind: len(numbers - before[kind]) for kind, numbers in bpf_ids().items()}
            expect(during["programs"] and during["maps"], f"expected programs and maps, seen {during}")
            end(agent)
            wait_gone(before)
        return f"{hook}: {during} while it ran, nothing afterwards"

    def clean_stop(self):
        """SIGTERM leaves no program, map or link."""
        return self.stops(lambda agent: agent.stop(10))

    def killed(self):
        """Neither does SIGKILL."""

        def kill(agent):
            agent.process.send_signal(signal.SIGKILL)
            agent.process.wait()

        return self.stops(kill)

    def no_btf(self):
        """Without the kernel's type information: what procfs tells, and all of it with --btf."""
        if not os.path.exists(f"{BTF}/vmlinux"):
            raise Missing(f"{BTF}/vmlinux")
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "vmlinux.btf")
            run("cp", f"{BTF}/vmlinux", copy)
            run("mount", "-t", "tmpfs", "none", BTF)
            try:
                with Agent(self.kitty) as agent:
                    hook = hook_of(agent)
                    expect(hook == "none", f"expected no hook, seen {hook}")
                    watched_shows(agent, ["net_tcp_out_segs_total"])
                    said = agent.output()
                    expect("CONFIG_DEBUG_INFO_BTF" in said and "--btf" in said, f"expected a reason, seen {said}")
                    agent.stop(10)
                with Agent(self.kitty, f"--btf={copy}") as agent:
                    with_file = hook_of(agent)
                    watched_shows(agent, ["net_tcp_out_segs_total", "net_tcp_rtt_us"])
                    agent.stop(10)
            finally:
                run("umount", BTF)
        expect(with_file != "none", "expected a hook with --btf, seen none")
        return f"procfs metrics alone; with --btf {with_file}"

    def as_nobody(self, *flags, memlock="unlimited"):
        """The agent with the four capabilities, its binary where nobody may look, and what the unit file limits to."""
        where = shutil.copy(self.kitty, tempfile.mkdtemp(prefix="kitty-host-"))  # which the VM's end takes along
        os.chmod(os.path.dirname(where), 0o755)
        return Agent(where, *flags, prefix=["prlimit", f"--memlock={memlock}", *with_capabilities(FOUR)])

    def memlock(self):
        """Before 5.11 maps and programs count against RLIMIT_MEMLOCK, which the four cannot raise."""
        charged = kernel_version() < (5, 11)
        with self.as_nobody(memlock="65536:65536") as agent:
            hook = hook_of(agent)
            watched_shows(agent, ["net_tcp_out_segs_total"] + ([] if charged else ["net_tcp_rtt_us"]))
            log = agent.output()
            agent.stop(10)
        expect((hook == "none") == charged, f"expected {'no' if charged else 'a'} hook, seen {hook}:\n{log}")
        said = f"RLIMIT_MEMLOCK is 64 KiB, and kernel {'.'.join(map(str, kernel_version()))} charges maps and programs"
        expect(not charged or said in log, f"expected '{said}', seen:\n{log}")
        return f"with 64 KiB {hook}{', ' + said if charged else ''}"

    def bpf_disabled(self):
        """Where kernel.unprivileged_bpf_disabled is set, kernels before 5.19 want CAP_BPF for reading maps, too."""
        before = write_sysctl("kernel.unprivileged_bpf_disabled", "2")
        try:
            with self.as_nobody() as agent:
                hook = hook_of(agent)
                expect(hook != "none", f"no hook:\n{agent.output()}")
                watched_shows(agent, ["net_tcp_out_segs_total", "net_tcp_rtt_us"])
                must, may = kept_on_this_kernel()
                wanted = must | (1 << BPF if may else 0)
                for name, fields in threads_of(agent.process.pid).items():
                    seen = int(fields["CapEff"], 16)
                    expect(seen == wanted, f"thread {name} holds {seen:#x}, expected {wanted:#x}")
                agent.stop(10)
        finally:
            write_sysctl("kernel.unprivileged_bpf_disabled", before)
        return f"{hook}, CapEff {wanted:#x}"

    def paranoid(self):
        """Debian's kernels give kprobes above 2 to CAP_SYS_ADMIN only; fentry works without."""
        patched = platform.release().endswith(("-amd64", "-arm64"))  # Debian's name for its flavours
        before = write_sysctl("kernel.perf_event_paranoid", "3")
        kprobe = "kprobe/tcp_ack_update_rtt"
        try:
            with self.as_nobody(f"--rtt-hook={kprobe}") as agent:
                alone = hook_of(agent)
                why, log = reasons(agent).get(kprobe, ""), agent.output()
                agent.stop(10)
            with self.as_nobody() as agent:
                hook = hook_of(agent)
                watched_shows(agent, ["net_tcp_out_segs_total", "net_tcp_rtt_us"])
                agent.stop(10)
        finally:
            write_sysctl("kernel.perf_event_paranoid", before)
        expect((alone == "none") == patched, f"patched: {patched}; seen {alone}:\n{log}")
        said = "kernel.perf_event_paranoid is 3; distributions that know values above 2 then want CAP_SYS_ADMIN"
        expect(not patched or said in why, f"expected '{said}', seen {why}")
        expect(hook.startswith("fentry/") or not patched, f"expected fentry, seen {hook}")
        return f"kprobe alone: {alone} {why}\n    auto: {hook}"

    def lockdown(self):
        """Confidentiality: whatever hook is left, the agent serves, and says what lockdown took."""
        try:
            with open(LOCKDOWN, "w") as file:
                file.write("confidentiality")
        except FileNotFoundError:
            raise Missing(f"{LOCKDOWN} (CONFIG_SECURITY_LOCKDOWN_LSM)") from None
        done = subprocess.run([self.kitty, "check"], capture_output=True, text=True, timeout=STARTED_S)
        expect(done.returncode in (0, 1), f"exit status {done.returncode}: {done.stdout}{done.stderr}")
        expect("confidentiality" in done.stdout, f"check does not name it: {done.stdout}")
        with Agent(self.kitty) as agent:
            hook = hook_of(agent)
            watched_shows(agent, ["net_tcp_out_segs_total"] + ([] if hook == "none" else ["net_tcp_rtt_us"]))
            expect("lockdown is 'confidentiality'" in agent.output(), f"no reason in the log:\n{agent.output()}")
            agent.stop(10)
        return f"hook {hook}, check's exit status {done.returncode}"


def main():
    order = ("check", "clean_stop", "killed", "no_btf", "memlock", "bpf_disabled", "paranoid", "lockdown")
    cases = {name: getattr(Host, name) for name in order}
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--expect-hook")
    parser.add_argument("--cases", default=",".join(cases))
    given = parser.parse_args()
    host = Host(os.path.abspath(given.kitty), given.expect_hook)
    return run_cases([(case.__name__, lambda case=case: case(host)) for case in choose(parser, given.cases, cases)])


if __name__ == "__main__":
    sys.exit(main())
