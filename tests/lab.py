#!/usr/bin/env python3
"""A small network lab: namespaces joined by veth, light TCP traffic, the agent, and a record of its scrapes.

As a module it is what the tests in vm/ and native/ share; as a program it is the traffic:

    lab.py echo ADDRESS PORT [--bytes N] [--seconds S]
    lab.py send ADDRESS PORT [--bytes N] [--seconds S] [--interval S] [--bind ADDRESS PORT]

`send` writes messages of N bytes and waits for the one byte `echo` answers each with; it connects anew when the
connection fails. An address with a colon makes an AF_INET6 socket, so ::ffff:10.0.0.1 gives a v4-mapped one. Both end
after S seconds at the latest. Needs root for everything but the traffic; standard library only.
"""

# Few modules: in an emulated VM each costs its reader a second, and a program is started for every connection's end.
import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

MESSAGE_BYTES = 20_000
TRAFFIC = (sys.executable, "-IS", os.path.abspath(__file__))
TRAFFIC_LIMIT_S = 900  # no traffic program outlives this, whatever happens to the test


class Failure(Exception):
    """What was expected and what was seen instead."""


class Missing(Exception):
    """What this machine lacks, by name, so that a test cannot run."""


# Traffic


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def echo(address, port, message_bytes, seconds):
    """Answers every message_bytes received with one byte, on any number of connections, for so many seconds."""
    deadline = time.monotonic() + seconds
    with socket.socket(family_of(address), socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()

        def serve(peer):
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                owed = message_bytes
                try:
                    while data := peer.recv(min(owed, 65536)):
                        owed -= len(data)
                        if owed == 0:
                            peer.sendall(b"k")
                            owed = message_bytes
                except OSError:
                    return  # the sender connects anew

        while (left := deadline - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                break
            peer.settimeout(None)
            threading.Thread(target=serve, args=(peer,), daemon=True).start()


def send(address, port, message_bytes, seconds, interval, bind):
    """Ping-pong with echo(): one message each `interval` seconds, or as fast as answers come, for so many seconds."""
    deadline = time.monotonic() + seconds
    message = bytes(message_bytes)
    while (left := deadline - time.monotonic()) > 0:
        with socket.socket(family_of(address), socket.SOCK_STREAM) as connection:
            connection.settimeout(left)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                if bind:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    connection.bind((bind[0], int(bind[1])))
                connection.connect((address, port))
                while time.monotonic() < deadline:
                    started = time.monotonic()
                    connection.sendall(message)
                    if not connection.recv(1):
                        break
                    time.sleep(max(0, started + interval - time.monotonic()))
            except OSError:
                time.sleep(0.2)  # not listening yet, or broken by a fault


# Namespaces


def run(*command):
    """Runs a command to its end and returns its output; a Failure with what it said where it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Lab:
    """Owns network namespaces and the processes started in them: `with Lab() as lab:` leaves nothing behind."""

    def __init__(self, prefix="kitty"):
        self.prefix = f"{prefix}-{os.getpid()}-"
        self.namespaces = []
        self.processes = []

    def __enter__(self):
        # Otherwise a `timeout` on the test would skip __exit__. Only the main thread may set a handler.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self

    def __exit__(self, *_):
        self.stop(*self.processes)
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL)

    def namespace(self, name):
        """Makes a namespace with lo up; returns its full name."""
        full = self.prefix + name
        run("ip", "netns", "add", full)
        self.namespaces.append(full)
        run("ip", "-n", full, "link", "set", "lo", "up")
        return full

    def join(self, left, left_addresses, right, right_addresses):
        """Joins two namespaces by a veth pair, called eth0 at both ends, with these addresses (with prefix length)."""
        run("ip", "-n", left, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", right)
        for namespace, addresses in ((left, left_addresses), (right, right_addresses)):
            for address in addresses:
                nodad = ["nodad"] if ":" in address else []  # usable at once, not after duplicate detection
                run("ip", "-n", namespace, "addr", "add", address, "dev", "eth0", *nodad)
            run("ip", "-n", namespace, "link", "set", "eth0", "up")

    def start(self, namespace, *command, output=None, **environment):
        """Starts a command in a namespace. The process returned is the command itself: ip(8) becomes it by exec.

        `output`: the file that takes what it says; without one it says it here.
        """
        # By env(1), so that no agent takes ip for a watched process before it has changed its namespace.
        if environment:
            command = ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
        with open(output, "w") if output else contextlib.nullcontext() as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command],
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self.processes.append(process)
        return process

    def start_echo(self, namespace, address, port):
        return self.start(namespace, *TRAFFIC, "echo", address, str(port))

    def start_send(self, namespace, address, port, interval, bind=None, **environment):
        options = ["--interval", str(interval)] + (["--bind", bind[0], str(bind[1])] if bind else [])
        return self.start(namespace, *TRAFFIC, "send", address, str(port), *options, **environment)

    def stop(self, *processes):
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        self.processes = [process for process in self.processes if process not in processes]


class Fault:
    """A qdisc on a namespace's device: injected on entry, removed on exit. `since` and `until`: when it was, fully."""

    def __init__(self, namespace, *qdisc, device="eth0"):
        self.namespace = namespace
        self.device = device
        self.qdisc = qdisc
        self.since = self.until = None

    def __enter__(self):
        run("tc", "-n", self.namespace, "qdisc", "replace", "dev", self.device, "root", *self.qdisc)
        self.since = time.monotonic()
        return self

    def __exit__(self, *_):
        run("tc", "-n", self.namespace, "qdisc", "del", "dev", self.device, "root")
        self.until = time.monotonic()


class Loss:
    """Drops so many percent of what a namespace's sockets are sent to one TCP port; where netem may be missing."""

    def __init__(self, namespace, port, percent):
        if not shutil.which("nft"):
            raise Missing("nft (package nftables)")
        self.nft = ("ip", "netns", "exec", namespace, "nft")
        self.rule = f"tcp dport {port} numgen random mod 100 < {percent} drop"

    def __enter__(self):
        run(*self.nft, f"table inet loss {{ chain in {{ type filter hook input priority 0; {self.rule}; }}; }}")
        return self

    def __exit__(self, *_):
        run(*self.nft, "delete table inet loss")


def sent_bytes(namespace):
    """What left through a namespace's eth0 so far."""
    return int(run("ip", "netns", "exec", namespace, "cat", "/sys/class/net/eth0/statistics/tx_bytes"))


READING_LIMIT_S = 2  # in an emulated VM


def socket_of(namespace, remote_port):
    """TCP_INFO of the one connection to a port, as ss shows it; the names are ss's. Times in seconds."""
    ss = ["ss", "-tinOHe", "state", "established", "dport", "=", f":{remote_port}"]
    for _ in range(10):
        started = time.monotonic()
        text = run("ip", "netns", "exec", namespace, *ss)
        if time.monotonic() < started + READING_LIMIT_S:
            break  # else the machine stood still, and nobody knows of when the figures are
    lines = text.splitlines()
    expect(len(lines) == 1, f"expected one connection to port {remote_port}, seen: {text}")

    def number(pattern, absent=0.0):
        match = re.search(r"(?<=\s)" + pattern, lines[0])
        return float(match[1]) if match else absent  # ss leaves out what is 0

    return {
        "time_s": started,
        "ino": int(number(r"ino:(\d+)")),
        "rtt": number(r"rtt:([\d.]+)/") / 1e3,
        "minrtt": number(r"minrtt:([\d.]+)") / 1e3,
        "segs_out": int(number(r"segs_out:(\d+)")),
        "data_segs_out": int(number(r"data_segs_out:(\d+)")),
        "bytes_sent": int(number(r"bytes_sent:(\d+)")),
        "retrans": int(number(r"retrans:\d+/(\d+)")),
        "busy": number(r"busy:(\d+)ms") / 1e3,
    }


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# Scrapes

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse_exposition(text, wanted=re.compile("")):
    """[(name, labels, value)] of the text format's samples whose line `wanted` matches; a Failure where one is none."""
    samples = []
    for line in text.split("\n"):
        if not line or line[0] == "#" or not wanted.match(line):
            continue
        match = SAMPLE.fullmatch(line)
        if not match or LABEL.sub("", match[2] or ""):
            raise Failure(f"not a sample of the text format: {line!r}")
        labels = {
            name: re.sub(r'\\[\\"n]', lambda escape: ESCAPES[escape[0]], value)
            for name, value in LABEL.findall(match[2] or "")
        }
        samples.append((match[1], labels, float(match[3])))
    return samples


def fetch(host, port, path):
    """The body of an HTTP GET. OSError where nobody answers, a Failure where the answer is not a whole 200."""
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while data := connection.recv(65536):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    if not re.match(rb"HTTP/1\.[01] 200 ", head) or not length or int(length[1]) != len(body):
        raise Failure(f"expected a whole 200 with its length, seen {len(body)} bytes after {head!r}")
    return body.decode()


class Scrape:
    def __init__(self, time_s, samples):
        self.time_s = time_s  # monotonic
        self.samples = samples

    def find(self, name, **labels):
        """[(labels, value)] of the series of that name that have these labels."""
        return [
            (found, value)
            for sample, found, value in self.samples
            if sample == name and all(found.get(label) == wanted for label, wanted in labels.items())
        ]

    def value(self, name, **labels):
        """The one such series' value, or None where there is none; a Failure where there are several."""
        found = self.find(name, **labels)
        if len(found) > 1:
            raise Failure(f"expected one series {name}{labels}, seen {found}")
        return found[0][1] if found else None


class Agent:
    """A kitty process and, in a thread, a record of its scrapes each INTERVAL_S. `with Agent(...)` stops it."""

    INTERVAL_S = 0.5
    # All that most tests look at: an emulated CPU takes longer for a text's parsing than for the test.
    WANTED = re.compile("net_tcp_|kitty_rtt_hook_info|kitty_tcp_|kitty_rtt_samples")
    EVERYTHING = re.compile("")

    def __init__(self, binary, *flags, port=9100, prefix=(), wanted=None):
        """`wanted`: which samples' lines are recorded; a subclass may say so too."""
        self.command = [*prefix, binary, f"--web.listen-address=127.0.0.1:{port}", *flags]
        self.port = port
        self.wanted = wanted or self.WANTED
        self.scrapes = []  # appended to by the thread only
        self.refused = 0
        self.broken = None
        self.log = None
        self.process = None
        self.thread = None
        self.stopping = threading.Event()

    def __enter__(self):
        self.log = os.fdopen(os.memfd_create("agent-log"), "w+")
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT
        )
        self.thread = threading.Thread(target=self._record, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def _record(self):
        while not self.stopping.is_set():
            started = time.monotonic()
            try:
                text = fetch("127.0.0.1", self.port, "/metrics")
                self.scrapes.append(Scrape(started, parse_exposition(text, self.wanted)))
            except OSError:
                self.refused += 1  # not listening yet; whoever waits sees that nothing comes
            except (Failure, ValueError) as error:
                self.broken = self.broken or error
            self.stopping.wait(max(0, started + self.INTERVAL_S - time.monotonic()))

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def check(self):
        """A Failure where the agent has died or served what is not the text format."""
        if self.broken:
            raise Failure(f"bad exposition: {self.broken}")
        if (status := self.process.poll()) is not None:
            raise Failure(f"the agent ended by itself with status {status}:\n{self.output()}")

    def wait(self, what, condition, limit_s, since=None):
        """The first scrape, taken after `since` (default: now), that condition(scrape) holds for; else a Failure."""
        since = time.monotonic() if since is None else since
        seen = 0
        while True:
            self.check()
            while seen < len(self.scrapes):
                scrape = self.scrapes[seen]
                seen += 1
                if since <= scrape.time_s <= since + limit_s and condition(scrape):
                    return scrape
            if time.monotonic() > since + limit_s + 2 * self.INTERVAL_S:
                raise Failure(f"expected within {limit_s} s: {what}")
            time.sleep(0.05)

    def series(self, name, since, until=None, **labels):
        """[(time, value)] of one series over a span of monotonic time; scrapes without it are left out."""
        until = time.monotonic() if until is None else until
        values = ((s.time_s, s.value(name, **labels)) for s in list(self.scrapes) if since <= s.time_s <= until)
        return [(time_s, value) for time_s, value in values if value is not None]

    def stop(self, limit_s):
        """SIGTERM; returns how long the end took. A Failure where that is over the limit or the status is not 0."""
        self.check()
        self.stopping.set()
        self.thread.join()
        started = time.monotonic()
        self.process.terminate()
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"expected an end within {limit_s} s of SIGTERM, seen none:\n{self.output()}") from None
        if status != 0:
            raise Failure(f"expected status 0 after SIGTERM, seen {status}:\n{self.output()}")
        return time.monotonic() - started


def median(series):
    if not series:
        raise Failure("expected a series, seen no value of it")
    values = sorted(value for _, value in series)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def rate(series):
    """A counter's growth per second from the first to the last value."""
    if len(series) < 2:
        raise Failure(f"expected a counter's series, seen {len(series)} values")
    return (series[-1][1] - series[0][1]) / (series[-1][0] - series[0][0])


def show(series, origin):
    """'-1.0:2100 -0.5:2140 ...': a recorded series for a failure's report, in seconds from `origin`."""
    return " ".join(f"{time_s - origin:.1f}:{value:g}" for time_s, value in series) or "(no values)"


# Cases


def expect(condition, what):
    if not condition:
        raise Failure(what)


def choose(parser, names, known):
    """The cases that a flag names, "quiet,loss", of {name: case}; `parser` ends the program over an unknown name."""
    chosen = names.split(",")
    if unknown := set(chosen) - set(known):
        parser.error(f"no case {' '.join(sorted(unknown))}")
    return [known[name] for name in chosen]


class Results:
    """What became of cases. Thread-safe."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.lock = threading.Lock()

    def record(self, name, case):
        """Runs a case, which returns its figures; prints its line; returns whether it did not fail."""
        since = time.monotonic()
        try:
            line = f"PASS {name}: {case()}"
        except Missing as missing:
            line = f"SKIP: {name}: {missing} is missing"
        except Failure as failure:
            line = f"FAIL {name}: {failure}"
        except Exception as error:  # a defect of the case's own must not pass for a success
            line = f"FAIL {name}: {error!r}"
        with self.lock:
            self.passed += line.startswith("PASS")
            self.failed += line.startswith("FAIL")
            self.skipped += line.startswith("SKIP")
            print(f"{line} ({time.monotonic() - since:.0f} s)", flush=True)
        return not line.startswith("FAIL")

    def status(self):
        """Prints the sums; returns the exit status: 77 where no case could run."""
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed else 0 if self.passed else 77


# Flags of unshare(1) for processes of the program's own, which end with it.
OWN_PIDS = ("--pid", "--fork", "--kill-child", "--mount-proc")


def isolate(inside, *namespaces):
    """Starts the program over in namespaces of its own, flags of unshare(1), with --inside behind its arguments; returns
    only where it is `inside` them. A network namespace's loopback is up then."""
    if not inside:
        os.execvp("unshare", ["unshare", *namespaces, sys.executable, *sys.argv, "--inside"])
    if "--net" in namespaces:
        run("ip", "link", "set", "lo", "up")


def run_cases(cases):
    """Runs (name, case) one after the other; returns the exit status."""
    results = Results()
    for name, case in cases:
        results.record(name, case)
    return results.status()


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("echo", "send"):
        command = commands.add_parser(name)
        command.add_argument("address")
        command.add_argument("port", type=int)
        command.add_argument("--bytes", type=int, default=MESSAGE_BYTES)
        command.add_argument("--seconds", type=float, default=TRAFFIC_LIMIT_S)
        if name == "send":
            command.add_argument("--interval", type=float, default=0)
            command.add_argument("--bind", nargs=2, metavar=("ADDRESS", "PORT"))
    given = parser.parse_args()
    if given.command == "echo":
        echo(given.address, given.port, given.bytes, given.seconds)
    else:
        send(given.address, given.port, given.bytes, given.seconds, given.interval, given.bind)


if __name__ == "__main__":
    main()
