#!/usr/bin/env python3
"""The image, built from Containerfile and run as deploy/kubernetes says: with its user, capabilities, limits and flags.

    container_test.py KITTY

Needs root and, to build and run, buildah, podman and runc. Images, containers and what they mount live in a folder of
the test's own, which goes at its end. Exit status 0 when every case holds; each case prints its figures.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(HERE, ".."))
from lab import Agent, Failure, Lab, Missing, Scrape, expect, parse_exposition, run_cases  # noqa: E402

LAB = os.path.join(HERE, "..", "lab.py")
NOBODY = 65534
OWN_USER = 65525  # privileges/user.h, kOwnUser
FIND_LIMIT_S = 15  # discovery is every 5 s; the rest is for a machine busy with other tests
STOP_LIMIT_S = 2
COMMAND_LIMIT_S = 60


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def read(*path):
    with open(os.path.join(TOP, *path)) as file:
        return file.read()


def version():
    return re.fullmatch(r"VERSION := (\S+)\n", read("version.mk"))[1]


# What the manifests ask for


def agent_container(name):
    """The container called kitty in a manifest of deploy/kubernetes, as YAML has it."""
    import yaml

    for document in yaml.safe_load_all(read("deploy", "kubernetes", name)):
        pod = document.get("spec", {}).get("template", document).get("spec", {})
        for container in pod.get("initContainers", []) + pod.get("containers", []):
            if container["name"] == "kitty":
                return container
    raise Failure(f"deploy/kubernetes/{name}: no container kitty")


def options_of(container, without=()):
    """podman's spelling of a container's securityContext and limits; `without`: capabilities left out."""
    context = container["securityContext"]
    options = ["--user", f"{context['runAsUser']}:{context['runAsGroup']}"]
    options += [f"--cap-drop={name.lower()}" for name in context["capabilities"]["drop"]]
    options += [f"--cap-add={name}" for name in context["capabilities"]["add"] if name not in without]
    if context["readOnlyRootFilesystem"]:
        options.append("--read-only")
    if not context["allowPrivilegeEscalation"]:
        options.append("--security-opt=no-new-privileges")
    for option, field in (("seccomp", "seccompProfile"), ("apparmor", "appArmorProfile")):
        expect(context[field]["type"] == "Unconfined", f"{field}: only Unconfined is known here")
        options.append(f"--security-opt={option}=unconfined")
    limits = container["resources"]["limits"]
    memory = re.fullmatch(r"(\d+)Mi", limits["memory"])[1]
    cpus = int(re.fullmatch(r"(\d+)m", limits["cpu"])[1]) / 1000
    return [*options, f"--memory={memory}m", f"--cpus={cpus}"]


# The engine


class Engine:
    """buildah and podman with everything in a folder of their own; `with Engine(kitty)` leaves nothing behind."""

    def __init__(self, kitty):
        for program in ("buildah", "podman", "runc", "conmon"):
            if not shutil.which(program):
                raise Missing(program)
        self.kitty = kitty
        self.image = agent_container("daemonset.yaml")["image"]
        self.names = 0
        self.cgroup = f"kitty-test-{os.getpid()}"

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="kitty-image-")
        storage = ["--storage-driver=vfs", f"--root={self.folder}/store", f"--runroot={self.folder}/run"]
        self.buildah = ["buildah", *storage]
        self.podman = ["podman", "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none",
                       f"--tmpdir={self.folder}/tmp", *storage]  # fmt: skip
        try:
            self._build()
            self._probe()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for command in ([*self.podman, "rm", "--all", "--force", "--time=1"], [*self.buildah, "rm", "--all"]):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_LIMIT_S)
        with open("/proc/self/mounts") as mounts:
            left = [line.split()[1] for line in mounts if line.split()[1].startswith(self.folder + "/")]
        for mount in sorted(left, reverse=True):
            subprocess.run(["umount", mount], stdin=subprocess.DEVNULL, capture_output=True)
        shutil.rmtree(self.folder)
        for hierarchy in ("", *os.listdir("/sys/fs/cgroup")):
            for folder, _, _ in os.walk(os.path.join("/sys/fs/cgroup", hierarchy, self.cgroup), topdown=False):
                with contextlib.suppress(OSError):  # a killed container's last process may take its time
                    os.rmdir(folder)

    def run(self, *command):
        """A command's output; a Failure with what it said where it fails."""
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_LIMIT_S
        )
        expect(done.returncode == 0, f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _build(self):
        """From a context that holds more than belongs into the image: .containerignore has to leave it out."""
        context = os.path.join(self.folder, "context")
        os.makedirs(os.path.join(context, "build"))
        shutil.copy(self.kitty, os.path.join(context, "build", "kitty"))
        for name in ("Containerfile", ".containerignore", "LICENSE", "Makefile"):
            shutil.copy(os.path.join(TOP, name), context)
        self.run(*self.buildah, "bud", "--isolation=chroot", f"--build-arg=VERSION={version()}",
                 f"--tag={self.image}", context)  # fmt: skip

    def _probe(self):
        """Missing, where containers cannot be had at all."""
        command = [*self.podman, "run", "--rm", *self.common(), *options_of(agent_container("daemonset.yaml")),
                   "--network=host", self.image, "--version"]  # fmt: skip
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_LIMIT_S
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise Missing(f"a podman that can start containers: {last}")
        expect(done.stdout == f"kitty {version()}\n", f"--version in the container: {done.stdout!r}")

    def common(self):
        # The engine's own limits are above what a machine inside a container may be allowed.
        return ["--ulimit=nofile=1024:4096", "--ulimit=nproc=4096:4096", f"--cgroup-parent=/{self.cgroup}"]

    def start(self, *options):
        """The start of a `podman run`, and the container's name."""
        self.names += 1
        name = f"kitty-test-{os.getpid()}-{self.names}"
        return [*self.podman, "run", f"--name={name}", *self.common(), *options], name

    def pid(self, name):
        """The number of a container's first process in this pid namespace."""
        deadline = time.monotonic() + FIND_LIMIT_S
        while time.monotonic() < deadline:
            done = subprocess.run([*self.podman, "inspect", "--format={{.State.Running}} {{.State.Pid}}", name],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)  # fmt: skip
            if done.stdout.startswith("true "):
                return int(done.stdout.split()[1])
            time.sleep(0.1)
        raise Failure(f"expected container {name} to run within {FIND_LIMIT_S} s")


@contextlib.contextmanager
def host_agent(engine, *flags, without=()):
    """The DaemonSet's container: pid and network of the host. The agent, and the container's name."""
    container = agent_container("daemonset.yaml")
    command, name = engine.start("--pid=host", "--network=host", *options_of(container, without))
    with Agent(engine.image, *flags, port=free_port(), prefix=command, wanted=Agent.EVERYTHING) as agent:
        try:
            yield agent, name
        finally:
            subprocess.run([*engine.podman, "rm", "--force", "--time=1", name],
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_LIMIT_S)  # fmt: skip


@contextlib.contextmanager
def nobodys_job():
    """Traffic of a watched process of another user, outside of any container: its labels."""
    with Lab() as lab, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(LAB, folder)  # where nobody may look
        namespace = lab.namespace("job")
        lab.start_echo(namespace, "127.0.0.1", 7000)
        sender = lab.start(
            namespace,
            "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            "/usr/bin/python3", "-IS", program, "send", "127.0.0.1", "7000", "--interval", "0.005",
            KITTY_WATCH="1", RANK="5", JOB_NAME="container-test",
        )  # fmt: skip
        yield {"pid": str(sender.pid), "rank": "5", "job": "container-test"}


def unreadable(scrape):
    return scrape.value("kitty_unreadable_processes", reason="permission") or 0


# The cases


def image(engine):
    """Two files, a numeric user, the port, the labels; and not larger than the binary by more than its licence."""
    [inspected] = json.loads(engine.run(*engine.podman, "image", "inspect", engine.image))
    config = inspected["Config"]
    expect(config["User"] == "0:0", f"user {config['User']}")
    expect(list(config["ExposedPorts"]) == ["9100/tcp"], f"ports {config['ExposedPorts']}")
    expect(config["Entrypoint"] == ["/kitty"] and not config.get("Cmd"), f"starts {config}")
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in config["Labels"].items()}
    expect(labels["version"] == version() and labels["title"] == "kitty" and labels["licenses"] == "MIT",
           f"labels {labels}")  # fmt: skip
    expect(labels["description"], f"labels {labels}")
    container = engine.run(*engine.buildah, "from", engine.image)
    root = engine.run(*engine.buildah, "mount", container)
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    seen = [os.path.relpath(path, root) for path in files]
    expect(seen == ["LICENSE", "kitty"], f"expected LICENSE and kitty, seen {seen}")
    modes = [oct(os.stat(path).st_mode & 0o7777) for path in files]
    expect(modes == ["0o644", "0o755"], f"modes {modes}")
    engine.run(*engine.buildah, "rm", container)
    return f"{inspected['Size']} bytes"


def daemonset(engine):
    """On the host's pids and network: another user's process outside is measured; it ends at once, with status 0."""
    with nobodys_job() as labels, host_agent(engine) as (agent, name):
        for metric in ("net_tcp_out_segs_total", "net_tcp_retransmits_total", "net_tcp_tx_queue_bytes"):
            agent.wait(f"{metric}{labels}", lambda s, m=metric: s.value(m, **labels) is not None, FIND_LIMIT_S)
        scrape = agent.scrapes[-1]
        [(hook, _)] = scrape.find("kitty_rtt_hook_info")
        expect(hook["hook"] != "none", f"expected a hook, seen none:\n{agent.output()}")
        rtt = agent.wait("its RTT", lambda s: s.value("net_tcp_rtt_us", **labels) is not None, FIND_LIMIT_S)
        agent.wait("its own segments", lambda s: (s.value("kitty_tcp_segments_sent_total", **labels) or 0) > 0,
                   FIND_LIMIT_S)  # fmt: skip
        agent.check()
        started = time.monotonic()
        engine.run(*engine.podman, "stop", "--time=10", name)
        took = time.monotonic() - started
        expect(took < STOP_LIMIT_S, f"podman stop took {took:.1f} s")
        code = engine.run(*engine.podman, "inspect", "--format={{.State.ExitCode}}", name)
        expect(code == "0", f"expected exit status 0, seen {code}:\n{agent.output()}")
        agent.process.wait(COMMAND_LIMIT_S)
        agent.stopping.set()
        return (
            f"hook {hook['hook']}, rtt {rtt.value('net_tcp_rtt_us', **labels):.0f} us, stopped in {took:.1f} s, "
            f"resident {scrape.value('process_resident_memory_bytes') / 2**20:.1f} MiB"
        )


def privileges(engine):
    """The container is given what the manifest says, of which kitty then gives up what serving does not need."""
    named = {2: "DAC_READ_SEARCH", 6: "SETGID", 7: "SETUID", 19: "SYS_PTRACE", 38: "PERFMON", 39: "BPF"}  # uapi/linux/capability.h
    asked = set(agent_container("daemonset.yaml")["securityContext"]["capabilities"]["add"])

    def status_of(*flags):
        with host_agent(engine, *flags) as (agent, name):
            agent.wait("a first scrape", lambda s: s.find("kitty_rtt_hook_info"), FIND_LIMIT_S)
            with open(f"/proc/{engine.pid(name)}/status") as status:
                return dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)

    def capabilities(status, field):
        bits = int(status[field], 16)
        return {named.get(bit, str(bit)) for bit in range(64) if bits >> bit & 1}

    given = status_of("--keep-privileges")
    expect(given["Uid"].split() == ["0"] * 4, f"expected uid 0, seen {given['Uid']}")
    expect(given["NoNewPrivs"] == "1", f"expected no new privileges, seen {given['NoNewPrivs']}")
    for field in ("CapBnd", "CapPrm", "CapEff"):
        expect(capabilities(given, field) == asked, f"{field}: expected {asked}, seen {capabilities(given, field)}")
    left = status_of()
    kept = capabilities(left, "CapPrm")
    for field in ("Uid", "Gid"):
        expect(left[field].split() == [str(OWN_USER)] * 4, f"expected {field} {OWN_USER}, seen {left[field]}")
    expect(left["Groups"].split() == [], f"expected no groups, seen {left['Groups']}")
    expect({"SYS_PTRACE", "DAC_READ_SEARCH"} <= kept < asked, f"expected less than {asked} to be kept, seen {kept}")
    return f"given {', '.join(sorted(asked))}; kept {', '.join(sorted(kept))} as uid {OWN_USER}"


def scrape_inside(pid, port):
    """A scrape from inside a container's network namespace; None while nobody answers."""
    inside = f"import sys; sys.path.insert(0, {os.path.dirname(LAB)!r}); from lab import fetch; "
    inside += f"sys.stdout.write(fetch('127.0.0.1', {port}, '/metrics'))"
    done = subprocess.run(["nsenter", f"--target={pid}", "--net", "/usr/bin/python3", "-Bc", inside],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)  # fmt: skip
    return Scrape(time.monotonic(), parse_exposition(done.stdout)) if done.returncode == 0 else None


def sidecar(engine):
    """In the pids and network of the job's container: its process, under its number in there, and no other."""
    container = agent_container("sidecar.yaml")
    # The image holds no python; the job borrows this machine's.
    folders = [f"/{name}" for name in ("usr", "bin", "lib", "lib64") if os.path.exists(f"/{name}")]
    borrowed = [f"--volume={folder}:{folder}:ro" for folder in folders]
    traffic = (
        "/usr/bin/python3 -IS /lab.py echo 127.0.0.1 7000 & "
        "exec /usr/bin/python3 -IS /lab.py send 127.0.0.1 7000 --interval 0.005"
    )
    job_command, job = engine.start(
        "--detach", "--network=none", f"--user={NOBODY}:{NOBODY}",
        *borrowed, f"--volume={os.path.abspath(LAB)}:/lab.py:ro",
        "--env=KITTY_WATCH=1", "--env=RANK=3", "--env=JOB_NAME=pod", "--entrypoint=/bin/sh",
    )  # fmt: skip
    engine.run(*job_command, engine.image, "-c", traffic)
    port = free_port()
    command, name = engine.start(
        "--detach", f"--pid=container:{job}", f"--network=container:{job}", *options_of(container)
    )
    with nobodys_job() as outside:
        engine.run(*command, engine.image, f"--web.listen-address=127.0.0.1:{port}")
        pid = engine.pid(name)
        labels = {"pid": "1", "rank": "3", "job": "pod"}
        deadline = time.monotonic() + FIND_LIMIT_S
        seen = None
        while time.monotonic() < deadline:
            scrape = scrape_inside(pid, port)
            seen = scrape or seen
            if scrape and scrape.value("net_tcp_rtt_us", **labels) is not None:
                break
            time.sleep(0.5)
        log = subprocess.run([*engine.podman, "logs", name], capture_output=True, text=True).stderr
        expect(seen, f"expected an answer within {FIND_LIMIT_S} s:\n{log}")
        rtt = seen.value("net_tcp_rtt_us", **labels)
        expect(rtt is not None, f"expected net_tcp_rtt_us{labels}, seen {seen.find('kitty_process_info')}:\n{log}")
        jobs = {found["job"] for found, _ in seen.find("kitty_process_info")}
        expect(jobs == {"pod"}, f"expected this pod's job only, seen {jobs} ({outside['job']} is outside)")
        [(source, _)] = seen.find("kitty_socket_source_info")
    started = time.monotonic()
    engine.run(*engine.podman, "stop", "--time=10", name)
    took = time.monotonic() - started
    code = engine.run(*engine.podman, "inspect", "--format={{.State.ExitCode}}", name)
    expect(took < STOP_LIMIT_S and code == "0", f"podman stop: {took:.1f} s, exit status {code}")
    for each in (name, job):  # one after the other, for the first uses the second's namespaces
        engine.run(*engine.podman, "rm", "--force", "--time=0", each)
    return f"rtt {rtt:.0f} us, sockets by {source['source']}, stopped in {took:.1f} s"


def missing_capability(engine):
    """Without one of the capabilities: what docs/OPERATING.md says is lost is lost, and said in its words."""
    operating = read("docs", "OPERATING.md")
    seen = []
    with nobodys_job() as labels:

        def first_scrape(*without):
            with host_agent(engine, without=without) as (agent, _):
                # It answers before it has looked for processes.
                listed = lambda s: s.value("kitty_collector_success", collector="processes") == 1  # noqa: E731
                scrape = agent.wait("a scrape with processes listed", listed, FIND_LIMIT_S)
                return scrape, agent.output()

        def is_found(scrape):
            return bool(scrape.find("kitty_process_info", **labels))

        with host_agent(engine) as (agent, _):
            whole = agent.wait(f"{labels} with all capabilities", is_found, FIND_LIMIT_S)
        for capability in ("BPF", "PERFMON"):
            scrape, log = first_scrape(capability)
            words = f"missing CAP_{capability}"
            remedy = "run as root, or grant it with setcap, --cap-add or securityContext"
            expect(words in log and remedy in log,
                   f"without {capability}: expected '{words}' and '{remedy}':\n{log}")
            expect(words in operating and remedy in operating, f"docs/OPERATING.md lacks '{words}' or '{remedy}'")
            [(hook, _)] = scrape.find("kitty_rtt_hook_info")
            expect(hook["hook"] == "none", f"without {capability}: expected no hook, seen {hook}")
            expect(is_found(scrape), f"without {capability}: expected the job to be found all the same")
            seen.append(f"{capability}: no hook")
        for capability in ("DAC_READ_SEARCH", "SYS_PTRACE"):
            scrape, _ = first_scrape(capability)
            expect(not is_found(scrape), f"without {capability}: expected another user's process not to be found")
            more = unreadable(scrape) - unreadable(whole)
            expect(more > 0, f"without {capability}: expected unreadable processes, seen {more} more")
            seen.append(f"{capability}: {more:.0f} more unreadable")
    return "; ".join(seen)


def main():
    kitty = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    try:
        import yaml  # noqa: F401
    except ImportError:
        print("SKIP: python3-yaml is missing")
        return 77
    cases = [image, daemonset, privileges, sidecar, missing_capability]
    try:
        with Engine(kitty) as engine:
            return run_cases((case.__name__, lambda case=case: case(engine)) for case in cases)
    except Missing as missing:
        print(f"SKIP: {missing} is missing")
        return 77


if __name__ == "__main__":
    sys.exit(main())
