#!/usr/bin/env python3
"""`kitty check` on this machine's own kernel: with all rights and with few, ports taken by whom, in odd surroundings.

    check_test.py KITTY

Needs root. Exit status 0 when every case holds; each case prints what it saw.
"""

import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import bpf_objects  # noqa: E402
from lab import Agent, Failure, Lab, expect, run_cases  # noqa: E402

RUNGS = [
    "kprobe/tcp_rtt_estimator",
    "fentry/tcp_rtt_estimator",
    "fentry/tcp_ack_update_rtt",
    "kprobe/tcp_ack_update_rtt",
    "tp_btf/tcp_probe",
]
OTHERS = ["raw_tp/tcp_retransmit_skb", "raw_tp/sched_process_exec", "tp_btf/tcp_probe for time",
          "tp_btf/tcp_rcv_space_adjust", "iter/task_file"]  # fmt: skip
FOUR = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]
SETCAP = "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep "
UID = 61461  # nobody else's, so that what it has loaded is known by it
PORT = 9460  # and those behind it, up to 9479
LIMIT_S = 60
SLACK_S = 20


def as_user(uid, capabilities=()):
    """The prefix that runs a command as this user with these capabilities, and no others."""
    names = ",".join("+" + name.removeprefix("CAP_").lower() for name in capabilities)
    granted = [f"--inh-caps={names}", f"--ambient-caps={names}"] if names else ["--inh-caps=-all"]
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *granted]


def without_numbers(text):
    return re.sub(r"[0-9]+", "N", " ".join(text.split()))


class Outcome:
    """One run of `kitty check`, as text and as JSON, which must agree."""

    def __init__(self, kitty, *flags, port=PORT, prefix=(), environment=None):
        command = [*prefix, kitty, "check", f"--web.listen-address=127.0.0.1:{port}", *flags]
        environment = environment or {"PATH": os.environ["PATH"]}
        runs = [
            subprocess.run(
                [*command, *extra], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=LIMIT_S,
            )  # fmt: skip
            for extra in ([], ["--json"])
        ]
        self.text, self.status = runs[0].stdout, runs[0].returncode
        expect(runs[0].stderr == "" and runs[1].stderr == "", f"seen on stderr: {runs[0].stderr}{runs[1].stderr}")
        try:
            self.json = json.loads(runs[1].stdout)
        except ValueError as error:
            raise Failure(f"no JSON: {error}: {runs[1].stdout!r}; the text: {self.text}") from None
        self.fix, self.lost, self.works, self.hook = (self.json[name] for name in ("fix", "does_not", "works", "hook"))
        expect(runs[1].returncode == self.status == self.json["outcome"], f"statuses {runs}")
        expect(f"outcome:   {self.json['outcome_name']}, exit status {self.status}\n" in self.text, self.text)
        lines = self.text.splitlines()
        expect(len(lines) <= 56, f"{len(lines)} lines are no screen:\n{self.text}")
        for line in lines:
            expect(len(line) <= 80 or line.startswith("to fix:"), f"wider than 80 columns: {line}")
        # Processes come and go between the two runs.
        flat = without_numbers(self.text)
        for clause in [*self.works, *self.lost, self.fix, *(row["name"] for row in self.json["checks"])]:
            expect(without_numbers(clause) in flat, f"{clause!r} is not in the text:\n{self.text}")

    def row(self, what, name=""):
        found = [row for row in self.json["checks"] if row["what"] == what and row["name"] == name]
        expect(len(found) == 1, f"expected one {what} {name}, seen {found}:\n{self.text}")
        return found[0]


class Listener:
    """Something that holds 127.0.0.1:PORT: `answer` by HTTP to GET /metrics, or silence to whoever connects."""

    def __init__(self, port, answer=None):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = answer if self.path == "/metrics" else b"not found\n"
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        if answer is None:
            self.server, self.socket = None, socket.create_server(("127.0.0.1", port))
        else:
            self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
            self.socket = self.server.socket

    def __enter__(self):
        if self.server:
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        if self.server:
            self.server.shutdown()
        self.socket.close()


class Watched:
    """A process that only sleeps, with these variables in its environment."""

    def __init__(self, **environment):
        self.process = subprocess.Popen(
            ["sleep", "600"], env={"PATH": os.environ["PATH"], **environment}, stdin=subprocess.DEVNULL
        )

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def everything(kitty):
    """As root: every hook tried with its end, every capability held, and the outcome that follows from these."""
    seen = Outcome(kitty)
    for hook in RUNGS + OTHERS:
        row = seen.row("hook", hook)
        expect(row["state"] in ("works", "no"), f"{row}")
        expect(row["state"] == "works" or row["detail"], f"no reason why not {hook}:\n{seen.text}")
    working = [hook for hook in RUNGS if seen.row("hook", hook)["state"] == "works"]
    expect(seen.hook == (working or ["none"])[0], f"{seen.hook} of {working}:\n{seen.text}")
    for name in FOUR:
        expect(seen.row("capability", name)["state"] == "held", f"{name} of root:\n{seen.text}")
    expect(seen.status == (1 if seen.lost else 0), seen.text)
    expect(("every RTT sample: no better hook" in seen.lost) == (seen.hook == RUNGS[-1]), seen.text)
    for function in {hook.split("/")[1] for hook in RUNGS[:-1] if hook not in working}:
        expect(re.search(f"symbol +{function}: ", seen.text), f"nothing of {function} in kallsyms:\n{seen.text}")
    expect(seen.row("procfs")["detail"].startswith("/proc shows "), seen.text)
    with Agent(kitty, port=PORT + 1) as agent:  # which takes the same hook
        scrape = agent.wait("a scrape", lambda s: s.find("kitty_rtt_hook_info"), SLACK_S)
        [(labels, _)] = scrape.find("kitty_rtt_hook_info")
        agent.stop(5)
    expect(labels["hook"] == seen.hook, f"the agent takes {labels['hook']}, check says {seen.hook}")
    return f"hook {seen.hook}, exit status {seen.status}"


def wait_for_programs(uid, wanted):
    """What the user has loaded once that is `wanted`, or at the latest after SLACK_S: the kernel frees it late."""
    deadline = time.monotonic() + SLACK_S
    while (names := bpf_objects.names_of(uid)) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return names


def nothing_left(kitty):
    """Of a user of its own: after the check no program of it is loaded, so none is attached."""
    own = as_user(UID, FOUR)
    expect(bpf_objects.names_of(UID) == [], f"expected none before, seen {bpf_objects.names_of(UID)}")
    with Agent(kitty, port=PORT + 2, prefix=own) as agent:  # the control: loaded programs are seen
        agent.wait("a scrape", lambda s: s.find("kitty_rtt_hook_info"), SLACK_S)
        control = bpf_objects.names_of(UID)
        agent.stop(5)
    expect(len(control) >= 3, f"expected the agent's programs, seen {control}")
    gone = wait_for_programs(UID, [])
    expect(gone == [], f"of the agent that ended: {gone}")
    during = set()
    command = [*own, kitty, "check", f"--web.listen-address=127.0.0.1:{PORT + 2}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as running:
        while running.poll() is None:
            during.update(bpf_objects.names_of(UID))
        text = running.stdout.read()
    expect(running.returncode in (0, 1), f"seen {running.returncode}: {text}")
    expect(during, "expected programs at work during the check, seen none")
    left = wait_for_programs(UID, [])
    expect(left == [], f"left behind: {left}")
    return f"an agent holds {', '.join(control)}; check had {len(during)} at work, and left none"


def nobody(kitty):
    """Without any right: every capability missing by name, the one command, and still a screen."""
    seen = Outcome(kitty, prefix=as_user(65534))
    for name in FOUR:
        row = seen.row("capability", name)
        expect(row["state"] == "missing" and "without: " in row["detail"], f"{row}:\n{seen.text}")
    expect(seen.status == 1 and seen.hook == "none", seen.text)
    expect(seen.fix == SETCAP + kitty, f"seen: {seen.fix}")
    expect("CAP_BPF" in seen.row("hooks")["detail"], seen.text)
    expect(any("unreadable processes (" in lost for lost in seen.lost), seen.text)
    return seen.fix


def each_capability(kitty):
    """Three of the four: the missing one named, and lost what it is for."""
    seen_hooks = Outcome(kitty, prefix=as_user(UID, FOUR))
    expect(seen_hooks.hook in RUNGS, f"with the four alone: {seen_hooks.text}")
    # A root's process to be kept from: its environment and its descriptors.
    with Watched(KITTY_WATCH="1", RANK="4") as process:
        for missing in FOUR:
            seen = Outcome(kitty, prefix=as_user(UID, [name for name in FOUR if name != missing]))
            states = {name: seen.row("capability", name)["state"] for name in FOUR}
            wanted = {name: "missing" if name == missing else "held" for name in FOUR}
            expect(states == wanted, f"without {missing}: {states}:\n{seen.text}")
            expect(seen.status == 1 and seen.fix == SETCAP + kitty, f"without {missing}:\n{seen.text}")
            expect((seen.hook == "none") == (missing in FOUR[:2]), f"without {missing}:\n{seen.text}")
            # Recent kernels show an environment to CAP_PERFMON too, but neither namespace nor sockets.
            found = {one["pid"]: one for one in seen.json["watched"]}.get(process.pid)
            whole = bool(found and found["netns"])
            expect(whole == (missing in FOUR[:2]), f"without {missing}, rank 4: {found}:\n{seen.text}")
            said = any("may not be traced" in lost or "unreadable processes" in lost for lost in seen.lost)
            expect(whole or said, f"without {missing}:\n{seen.text}")
            # Root has CAP_SYS_ADMIN beside, which stands for the first two.
            name = missing.removeprefix("CAP_").lower()
            root = Outcome(kitty, prefix=["setpriv", f"--bounding-set=-{name}"])
            row = root.row("capability", missing)
            expect(row["state"] == ("held" if missing in FOUR[:2] else "missing"), f"{row}:\n{root.text}")
            expect(("held as CAP_SYS_ADMIN" in row["detail"]) == (missing in FOUR[:2]), f"{row}")
    return f"{seen_hooks.hook} with the four alone"


def confined(kitty):
    """no_new_privs: neither setcap nor sudo would help, so neither is advised."""
    seen = Outcome(kitty, prefix=["setpriv", "--no-new-privs", *as_user(65534)[1:]])
    expect(", no_new_privs" in seen.row("privileges")["detail"], seen.text)
    expect("AmbientCapabilities=" in seen.fix and "sudo" not in seen.fix, seen.fix)
    return seen.fix


def surroundings(kitty):
    """Kubernetes by its variable: the advice is a securityContext."""
    environment = {"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    seen = Outcome(kitty, prefix=as_user(65534), environment=environment)
    expect(seen.fix.startswith("securityContext: {runAsUser: 0, capabilities: {add: [BPF, PERFMON, "), seen.fix)
    return seen.fix


def addresses(kitty):
    """The port free, taken by a silent program, by node_exporter, by a kitty whose metrics are elsewhere."""
    port = PORT + 4
    free = Outcome(kitty, port=port)
    expect(free.row("address")["detail"] == f"127.0.0.1:{port} is free", free.text)
    with Listener(port):
        other = Outcome(kitty, port=port)
    expect(other.status == 2 and "another program listens there" in other.text, other.text)
    exporter = b'# TYPE node_exporter_build_info gauge\nnode_exporter_build_info{version="1.8.2"} 1\n'
    with Listener(port, exporter), Listener(port + 1):
        node = Outcome(kitty, port=port)
    expect(node.status == 2 and "node_exporter serves there" in node.text, node.text)
    remedy = f"--web.listen-address=127.0.0.1:{port + 2}"  # the next one is taken too
    expect(node.fix == f"{kitty} {remedy}", f"expected {remedy}, seen {node.fix}")
    with Listener(port, b"go_goroutines 1\n"):
        foreign = Outcome(kitty, port=port)
    expect(foreign.status == 2 and "another program" in foreign.text, foreign.text)
    with Agent(kitty, port=port) as agent:
        agent.wait("a scrape", lambda s: s.samples, SLACK_S)
        served = Outcome(kitty, port=port)
        agent.stop(5)
    with subprocess.Popen(
        [kitty, f"--web.listen-address=127.0.0.1:{port}", "--web.telemetry-path=/elsewhere", "--rtt-hook=none"],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as elsewhere:  # fmt: skip
        for line in elsewhere.stderr:
            if "msg=serving" in line:
                break
        moved = Outcome(kitty, port=port)
        elsewhere.send_signal(signal.SIGTERM)
    for seen in (served, moved):
        expect(seen.status == free.status and "a kitty serves there already" in seen.text, seen.text)
        expect(f"a kitty already serves on 127.0.0.1:{port}" in seen.works, seen.text)
        expect("--web.listen-address" not in seen.fix, seen.fix)
    return node.fix


def watched(kitty):
    """A watched process by pid, rank and job; one with a hostile name steers nothing."""
    hostile = "gpt\x1b[2J\n2" + "x" * 200
    with Watched(KITTY_WATCH="1", RANK="5", JOB_NAME="demo") as one, \
            Watched(KITTY_WATCH="1", RANK="6", JOB_NAME=hostile) as two:  # fmt: skip
        seen = Outcome(kitty)
    found = {process["pid"]: process for process in seen.json["watched"]}
    expect({one.pid, two.pid} <= found.keys(), f"not found:\n{seen.text}")
    expect(found[two.pid]["job"].startswith("gpt\ufffd[2J\ufffd2x"), f"{found[two.pid]}")
    own = os.stat("/proc/self/ns/net").st_ino
    process = found[one.pid]
    wanted = {"pid": one.pid, "rank": "5", "job": "demo", "comm": "sleep", "netns": own, "netns_shared": True}
    expect(process == wanted, f"expected {wanted}, seen {process}")
    expect("\x1b" not in seen.text, repr(seen.text))
    listed = re.search(r"watched +\d+\n(?:.*\n)*?works:", seen.text)[0]
    expect(len(listed.splitlines()) <= 18, seen.text)
    if len(found) <= 10:
        line = rf"  {one.pid} +5 +demo +sleep +{own} \*\n"
        expect(re.search(line, seen.text), f"expected {line}:\n{seen.text}")
    return f"{len(found)} found"


def alone(kitty):
    """In a pid namespace of its own, nothing watched: says whose processes these are, and how to watch one."""
    seen = Outcome(kitty, prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
    expect("of this container alone" in seen.row("procfs")["detail"], seen.text)
    expect("watched    none yet; start one as in KITTY_WATCH=1 RANK=0 JOB_NAME=demo ./train\n" in seen.text, seen.text)
    expect(seen.json["watched"] == [], f"{seen.json['watched']}")
    return seen.row("procfs")["detail"]


def hidden(kitty):
    """hidepid=2 and no CAP_SYS_PTRACE: said, with what sees the hidden; with it nothing is hidden."""
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]
    with Watched(KITTY_WATCH="1", RANK="8") as process:
        seen = Outcome(kitty, prefix=[*mount, *as_user(UID, FOUR[:2])])
        root = Outcome(kitty, prefix=mount)
    detail = seen.row("procfs")["detail"]
    expect("hides other users' processes" in detail and "CAP_SYS_PTRACE" in detail, seen.text)
    expect(any("hidepid=" in lost for lost in seen.lost) and seen.status == 1, seen.text)
    expect(seen.json["watched"] == [], seen.text)
    expect("hides" not in root.text, root.text)
    expect(process.pid in [one["pid"] for one in root.json["watched"]], root.text)
    return detail


def empty_chroot(kitty):
    """In a folder that holds nothing but the binary: no crash, what is missing by name, exit status 2."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(kitty, os.path.join(folder, "kitty"))
        seen = Outcome("/kitty", prefix=["chroot", folder])
    expect(seen.status == 2, seen.text)
    expect("open procfs '/proc': No such file or directory" in seen.row("procfs")["detail"], seen.text)
    expect("/sys/kernel/btf/vmlinux" in seen.row("BTF")["detail"], seen.text)
    expect("mount -t proc proc /proc" in seen.fix, seen.fix)
    return seen.fix


def other_files(kitty):
    """--btf and --path.procfs name what is used; a wrong one is said."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\x9f\xeb\x01 no BTF at all" * 10)
        file.flush()
        btf = Outcome(kitty, f"--btf={file.name}")
    expect(btf.hook == "none" and file.name in btf.row("BTF")["detail"], btf.text)
    expect(btf.fix == f"{kitty} --btf=FILE" and btf.status == 1, btf.text)
    procfs = Outcome(kitty, "--path.procfs=/tmp")
    expect("/tmp: no procfs is mounted there" in procfs.row("procfs")["detail"], procfs.text)
    expect(procfs.status == 2 and procfs.fix == f"{kitty} --path.procfs=/proc", procfs.text)
    return btf.row("BTF")["detail"]


def loopback_down(kitty):
    """In a network namespace whose lo is down no hook can be tested: said by name, with the command that mends it."""
    seen = Outcome(kitty, prefix=["unshare", "--net"])
    for what, name in (("hook", "tp_btf/tcp_probe"), ("hook", "iter/task_file")):
        detail = seen.row(what, name)["detail"]
        expect("the interface lo is down" in detail, f"{name}: {detail}")
    expect(seen.hook == "none" and seen.fix == "sudo ip link set lo up", seen.text)
    up = Outcome(kitty, prefix=["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"'])
    expect(up.hook != "none", up.text)
    return seen.fix


def btf_that_never_ends(kitty):
    """--btf of a FIFO, a device or 400 MB is refused at once."""
    said = []
    with tempfile.TemporaryDirectory() as folder:
        fifo, huge = os.path.join(folder, "fifo"), os.path.join(folder, "huge")
        os.mkfifo(fifo)
        with open(huge, "wb") as file:
            file.truncate(400 << 20)
        for path, reason in ((fifo, "not a regular file"), ("/dev/zero", "not a regular file"), (huge, "400 MiB")):
            since = time.monotonic()
            seen = Outcome(kitty, f"--btf={path}")
            detail = seen.row("BTF")["detail"]
            expect(path in detail and reason in detail and seen.hook == "none", seen.text)
            said.append(f"{reason} ({time.monotonic() - since:.1f} s)")
    return ", ".join(said)


def usage(kitty):
    """A wrong flag or address is exit status 3 and one line that names it; --help prints and ends."""
    lines = []
    for wrong in ("--web.port=1", "--btf", "--rtt-hook=kprobe", "--web.listen-address=localhost:9100", "now"):
        seen = subprocess.run([kitty, "check", wrong], capture_output=True, text=True, timeout=LIMIT_S)
        expect(seen.returncode == 3 and seen.stdout == "", f"{wrong}: {seen}")
        expect(seen.stderr.count("\n") == 1 and wrong.split("=")[-1].lstrip("-") in seen.stderr, f"{wrong}: {seen}")
        lines.append(seen.stderr.strip())
    helped = subprocess.run([kitty, "check", "--help"], capture_output=True, text=True, timeout=LIMIT_S)
    expect(helped.returncode == 0 and "--json" in helped.stdout and "exit status: 0" in helped.stdout, f"{helped}")
    return lines[0]


def main():
    kitty = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    try:
        bpf_objects.programs()
    except OSError as error:
        print(f"SKIP: leave to list BPF programs (CAP_SYS_ADMIN) is missing: {error}")
        return 77
    cases = [
        everything, nothing_left, nobody, each_capability, confined, surroundings, addresses, watched, alone, hidden,
        empty_chroot, other_files, loopback_down, btf_that_never_ends, usage,
    ]  # fmt: skip
    with Lab(), tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        binary = shutil.copy(kitty, folder)  # where every user may look
        return run_cases((case.__name__, lambda case=case: case(binary)) for case in cases)


if __name__ == "__main__":
    sys.exit(main())
