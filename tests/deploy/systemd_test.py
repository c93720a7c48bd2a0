#!/usr/bin/env python3
"""deploy/systemd/kitty.service under a real systemd: what its settings take away, kitty does not need.

    systemd_test.py KITTY

systemd-analyze finds no fault with the unit and rates its exposure; then a systemd of the test's own, first process of
namespaces of its own (pid, mount, network, cgroup, ipc, uts), starts the unit as it is beside a watched process of
another user, and this file, as one more of its services, looks at the agent from inside. Needs root, systemd 252 and
cgroup v2. Nothing of it is left: the namespaces go with their first process.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(HERE, ".."))
from lab import Failure, Missing, Results, Scrape, expect, fetch, parse_exposition  # noqa: E402

UNIT = os.path.join(TOP, "deploy", "systemd", "kitty.service")
SYSTEMD = "/lib/systemd/systemd"
BINARY = "/usr/local/bin/kitty"  # where the unit looks
MAX_EXPOSURE = 3.0  # "OK" of systemd-analyze ends at 4.9; an unhardened unit has 9.6
FIND_LIMIT_S = 20
BOOT_LIMIT_S = 90
STOP_LIMIT_S = 2
CAPABILITY_BITS = 1 << 2 | 1 << 19 | 1 << 38 | 1 << 39  # uapi/linux/capability.h: the four of the unit

UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup")

# In namespaces of its own: what the machine has is read-only, and hidden where systemd would write.
BOOT = r"""
set -e
out=$1 tree=$2 kitty=$3
mount --make-rprivate /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p /run/out /run/tree /run/systemd/system/kitty.service.d
mount --bind "$out" /run/out
mount --bind "$tree" /run/tree
mount -t tmpfs tmpfs /usr/local/bin
cp "$kitty" /usr/local/bin/kitty
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/tmp
mount -t tmpfs tmpfs /etc/systemd
mount -t tmpfs tmpfs /etc/default
mount -o remount,bind,ro /
cp /run/tree/deploy/systemd/kitty.service /run/systemd/system/
# Only what is tested starts: nothing of the machine's own boot.
cat >/run/systemd/system/kitty.service.d/test.conf <<END
[Unit]
DefaultDependencies=no
[Service]
StandardOutput=append:/run/kitty.log
StandardError=append:/run/kitty.log
END
cat >/run/systemd/system/job.service <<END
[Unit]
DefaultDependencies=no
[Service]
User=65534
Environment=KITTY_WATCH=1 RANK=4 JOB_NAME=systemd-test
ExecStart=/bin/sh -c "/usr/bin/python3 -IS /run/tree/tests/lab.py echo 127.0.0.1 7000 & \
  exec /usr/bin/python3 -IS /run/tree/tests/lab.py send 127.0.0.1 7000 --interval 0.005"
END
cat >/run/systemd/system/look.service <<END
[Unit]
DefaultDependencies=no
Wants=job.service kitty.service
After=job.service kitty.service
[Service]
Type=oneshot
StandardOutput=file:/run/out/look
StandardError=file:/run/out/look-errors
ExecStart=/usr/bin/python3 /run/tree/tests/deploy/systemd_test.py --inside
END
exec env -i container=kitty-test PATH="$PATH" /lib/systemd/systemd --system --unit=look.service --log-target=console \
  --show-status=no
"""


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


# From inside


def show(unit, *properties):
    text = subprocess.run(["systemctl", "show", unit, *(f"--property={p}" for p in properties)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30).stdout  # fmt: skip
    return dict(line.split("=", 1) for line in text.splitlines())


def wait_for_scrape(port, condition, what):
    deadline = time.monotonic() + FIND_LIMIT_S
    while time.monotonic() < deadline:
        try:
            scrape = Scrape(time.monotonic(), parse_exposition(fetch("127.0.0.1", port, "/metrics")))
            if condition(scrape):
                return scrape
        except (OSError, Failure):
            pass  # not serving yet
        time.sleep(0.5)
    raise Failure(f"expected within {FIND_LIMIT_S} s: {what}; kitty said:\n{read('/run/kitty.log')}")


def look():
    """The agent as the unit starts it; returns figures."""
    job = show("job.service", "MainPID")["MainPID"]
    labels = {"pid": job, "rank": "4", "job": "systemd-test"}
    name = "net_tcp_out_segs_total"
    scrape = wait_for_scrape(9100, lambda s: (s.value(name, **labels) or 0) > 0, f"{name}{labels} on :9100")
    [(hook, _)] = scrape.find("kitty_rtt_hook_info")
    if hook["hook"] != "none":
        scrape = wait_for_scrape(9100, lambda s: s.value("net_tcp_rtt_us", **labels) is not None, "its RTT")

    # Flags by EnvironmentFile; the stop ends the first one.
    started = time.monotonic()
    subprocess.run(["systemctl", "stop", "kitty.service"], check=True, timeout=30)
    stopped_s = time.monotonic() - started
    ended = show("kitty.service", "Result", "ExecMainStatus")
    expect(stopped_s < STOP_LIMIT_S and ended == {"Result": "success", "ExecMainStatus": "0"},
           f"stop took {stopped_s:.1f} s: {ended}")  # fmt: skip
    with open("/etc/default/kitty", "w") as flags:
        flags.write('KITTY_FLAGS="--web.listen-address=127.0.0.1:9101 --keep-privileges"\n')
    subprocess.run(["systemctl", "start", "kitty.service"], check=True, timeout=30)
    wait_for_scrape(9101, lambda s: s.find("kitty_build_info"), "an answer on :9101 of /etc/default/kitty")

    # What the unit gives and takes, with nothing given up by kitty itself.
    pid = show("kitty.service", "MainPID")["MainPID"]
    status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    uids = set(status["Uid"].split())
    expect(len(uids) == 1 and "0" not in uids, f"expected a user that is not root, seen {uids}")
    for field in ("CapBnd", "CapAmb", "CapEff"):
        expect(int(status[field], 16) == CAPABILITY_BITS, f"{field}: expected the four, seen {status[field]}")
    expect(status["NoNewPrivs"] == "1" and status["Seccomp"] == "2",
           f"no new privileges {status['NoNewPrivs']}, seccomp {status['Seccomp']}")  # fmt: skip
    subprocess.run(["systemctl", "stop", "kitty.service"], check=True, timeout=30)

    # A wrong flag is no reason to try again.
    with open("/etc/default/kitty", "w") as flags:
        flags.write("KITTY_FLAGS=--web.port=9101\n")
    subprocess.run(["systemctl", "start", "kitty.service"], timeout=30)
    deadline = time.monotonic() + FIND_LIMIT_S
    ended = {}
    while time.monotonic() < deadline and ended.get("ActiveState") != "failed":
        ended = show("kitty.service", "ActiveState", "SubState", "ExecMainStatus", "NRestarts")
        time.sleep(0.1)
    expect(ended == {"ActiveState": "failed", "SubState": "failed", "ExecMainStatus": "3", "NRestarts": "0"},
           f"wrong usage: {ended}")  # fmt: skip
    return {
        "hook": hook["hook"],
        "rtt_us": scrape.value("net_tcp_rtt_us", **labels),
        "stopped_s": stopped_s,
        "log": read("/run/kitty.log"),
    }


def inside():
    try:
        print(json.dumps(look()))
    except Failure as failure:
        print(json.dumps({"failure": str(failure)}))


# From outside


def analyze(kitty, folder):
    """No fault, and little exposure, as systemd-analyze has it."""
    unit = os.path.join(folder, "kitty.service")
    with open(unit, "w") as file:
        file.write(read(UNIT).replace(BINARY, kitty))  # it looks whether the binary is there
    verified = subprocess.run(["systemd-analyze", "verify", unit], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)  # fmt: skip
    # It reads the machine's other units, too, and says what is wrong with those.
    own = [line for line in (verified.stdout + verified.stderr).splitlines() if "kitty" in line]
    expect(verified.returncode == 0 and not own, f"systemd-analyze verify: {own or verified.stderr}")
    rated = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)  # fmt: skip
    exposure = re.search(r"Overall exposure level for kitty.service: ([\d.]+)", rated.stdout)
    expect(exposure, f"systemd-analyze security: {rated.stderr}")
    expect(float(exposure[1]) <= MAX_EXPOSURE, f"exposure {exposure[1]}, at most {MAX_EXPOSURE} is wanted")
    return f"exposure {exposure[1]}"


class Cgroup:
    """A cgroup to boot in, as the root of the namespace: else systemd would own the machine's."""

    def __init__(self):
        with open("/proc/self/mounts") as mounts:
            found = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
        if not found:
            raise Missing("cgroup v2")
        self.path = os.path.join(found[0], f"kitty-systemd-test-{os.getpid()}")

    def __enter__(self):
        try:
            os.mkdir(self.path)
        except OSError as error:
            raise Missing(f"a cgroup v2 that may be written to: {error}") from None
        return self

    def __exit__(self, *_):
        deadline = time.monotonic() + 10  # the processes are killed; the kernel needs a moment to see them off
        while os.path.exists(self.path):
            for folder, _, _ in os.walk(self.path, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w") as processes:
            processes.write(str(os.getpid()))


def direct_hook(kitty):
    """The hook that kitty takes on this machine when nothing is taken away from it."""
    with tempfile.TemporaryFile("w+") as log:
        agent = subprocess.Popen([kitty, "--web.listen-address=127.0.0.1:0"], stdin=subprocess.DEVNULL, stderr=log)
        try:
            deadline = time.monotonic() + FIND_LIMIT_S
            while time.monotonic() < deadline:
                log.seek(0)
                text = log.read()
                if " msg=serving " in text:
                    taken = re.search(r'msg="rtt hook taken[^"]*" hook=(\S+)', text)
                    return taken[1] if taken else "none"
                time.sleep(0.1)
        finally:
            agent.kill()
            agent.wait()
    raise Failure(f"expected kitty to serve within {FIND_LIMIT_S} s")


def boot(kitty, folder):
    """systemd starts the unit; the agent finds what it would find without it."""
    out = os.path.join(folder, "out")
    os.mkdir(out)
    probe = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/run"], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=60)  # fmt: skip
    if probe.returncode != 0:
        raise Missing(f"leave to make namespaces and mounts: {probe.stderr.strip()}")
    hook = direct_hook(kitty)
    with Cgroup() as cgroup, open(os.path.join(folder, "systemd"), "w") as log:
        first = subprocess.Popen(
            [*UNSHARE, "sh", "-c", BOOT, "boot", out, os.path.abspath(TOP), kitty],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=cgroup.enter,
        )  # fmt: skip
        said = ""
        try:
            deadline = time.monotonic() + BOOT_LIMIT_S
            while time.monotonic() < deadline and first.poll() is None and not said.endswith("\n"):
                time.sleep(0.2)
                said = read(os.path.join(out, "look")) if os.path.exists(os.path.join(out, "look")) else ""
        finally:
            first.kill()
            first.wait()
    errors = read(os.path.join(out, "look-errors")) if os.path.exists(os.path.join(out, "look-errors")) else ""
    boot_log = read(os.path.join(folder, "systemd"))
    expect(said.endswith("\n"), f"nothing said within {BOOT_LIMIT_S} s: {errors}{boot_log}")
    seen = json.loads(said)
    expect("failure" not in seen, seen.get("failure"))
    expect(seen["hook"] == hook, f"expected hook {hook} as without the unit, seen {seen['hook']}:\n{seen['log']}")
    rtt = f"{seen['rtt_us']:.0f} us" if seen["rtt_us"] is not None else "none"
    return f"hook {seen['hook']}, rtt {rtt}, stopped in {seen['stopped_s']:.1f} s"


def main():
    if sys.argv[1:] == ["--inside"]:
        return inside()
    kitty = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    if not shutil.which("systemd-analyze") or not os.path.exists(SYSTEMD):
        print("SKIP: systemd is missing")
        return 77

    def in_a_folder(case):
        with tempfile.TemporaryDirectory(prefix="kitty-systemd-") as folder:
            return case(kitty, folder)

    results = Results()
    for case in (analyze, boot):
        results.record(case.__name__, lambda case=case: in_a_folder(case))
    return results.status() or (77 if results.skipped else 0)


if __name__ == "__main__":
    sys.exit(main())
