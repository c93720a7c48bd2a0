#!/usr/bin/env python3
"""`kitty diagnose` live, with good targets and bad ones side by side: each bad one is said in one line and holds up
nobody, and the rest are judged.

    targets_test.py KITTY [--cases NAME,...]

The good targets replay a recording of tests/training/recorded, a rank each. Needs root: everything runs in a network
namespace of its own. Exit status 0 when every case holds, 77 where something is missing; each case prints its figures.
"""

import argparse
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from lab import Missing, choose, expect, isolate, run, run_cases  # noqa: E402

RECORDED = os.path.join(HERE, "..", "training", "recorded")
PORT = 9410  # the first of the good targets'; the bad ones' follow
BAD_PORT = 9420
WINDOW_S = 10
FETCH_S = 5  # kFetchTimeout of cli/gather.h
SLACK_S = 8  # for a machine that is busy with other tests
SERVE_LIMIT_BYTES = 64 << 20
BLACKHOLE, UNROUTABLE = "10.98.0.2:9100", "10.99.0.2:9100"
FOREIGN = '# TYPE node_load1 gauge\nnode_load1 0.5\nnode_cpu_seconds_total{cpu="0",mode="idle"} 1e5\n'
COUNTER = re.compile(r"[a-z_]+_(total|sum|count)(\{|$)")


class Recording:
    """A folder of tests/training/recorded as it goes on: counters grow evenly between its scrapes, and after the last
    one as they did in the last four seconds."""

    def __init__(self, case):
        folder = os.path.join(RECORDED, case)
        self.scrapes = []
        for name in sorted(os.listdir(folder)):
            if name.endswith(".prom"):
                with open(os.path.join(folder, name)) as file:
                    series = dict(line.rsplit(" ", 1) for line in file.read().splitlines())
                self.scrapes.append((int(name[:-5]) / 1000, {key: float(value) for key, value in series.items()}))
        begin = self.scrapes[0][0]
        self.scrapes = [(time_s - begin, series) for time_s, series in self.scrapes]

    def at(self, time_s):
        """{series: value} so many seconds after the beginning."""
        later = [i for i, (then, _) in enumerate(self.scrapes) if then > time_s]
        after = later[0] if later and later[0] > 0 else len(self.scrapes) - 1
        before = after - 1 if later else max(after - 4, 0)
        (begin_s, first), (end_s, last) = self.scrapes[before], self.scrapes[after]
        share = (time_s - begin_s) / (end_s - begin_s)
        current = last if not later else first
        return {
            key: first[key] + (last[key] - first[key]) * share if COUNTER.match(key) and key in first and key in last
            else value
            for key, value in current.items()
        }  # fmt: skip

    def text(self, time_s, rank=None, job="train"):
        """The exposition then, of one rank's node where one is given."""
        lines = []
        for key, value in self.at(time_s).items():
            if rank is not None and 'pid="' in key and f'pid="{rank + 1}"' not in key:
                continue
            if key == "kitty_watched_processes" and rank is not None:
                value = 1
            lines.append(key.replace('job="train"', f'job="{job}"') + f" {value!r}\n")
        return "".join(lines)


class Server:
    """Answers each connection on 127.0.0.1:port with behave(connection). `with Server(...)` stops it."""

    def __init__(self, port, behave):
        self.port = port
        self.target = f"127.0.0.1:{port}"
        self.behave = behave
        self.stopping = threading.Event()
        self.threads = []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.threads.append(threading.Thread(target=self._accept, daemon=True))
        self.threads[0].start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(5)

    def _accept(self):
        while not self.stopping.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            connection.settimeout(30)
            connection.recv(65536)
            self.behave(self, connection)


def answer(body, status="200 OK", claimed=None):
    length = len(body) if claimed is None else claimed
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n".encode() + body


def replaying(recording, rank=None, skip_s=0.0, job="train", clock=time.monotonic):
    """A behaviour: the recording from `skip_s` on, beginning now."""
    start = clock()

    def behave(_, connection):
        text = recording.text(clock() - start + skip_s, rank, job)
        connection.sendall(answer(text.encode()))

    return behave


def saying(data):
    return lambda _, connection: connection.sendall(data)


def dripping(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(60):
        if server.stopping.wait(1):
            return
        connection.sendall(b"#")


def endless_headers(server, connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    block = b"X-Header: x\r\n" * 1000
    for _ in range(SERVE_LIMIT_BYTES // len(block)):
        if server.stopping.is_set():
            return
        connection.sendall(block)


def silent(server, _):
    server.stopping.wait(60)


class Good:
    """The four ranks of a recording, a target each."""

    def __init__(self, case, skip_s=0.0, port=PORT):
        recording = Recording(case)
        self.servers = [Server(port + rank, replaying(recording, rank, skip_s)) for rank in range(4)]
        self.targets = [server.target for server in self.servers]

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        for server in self.servers:
            self.stack.enter_context(server)
        return self

    def __exit__(self, *_):
        self.stack.close()


# How long each recording takes to be all fault.
FAULT_S = {"egress_20": 4, "loss_5": 3, "link": 2, "quiet": 0}


def bad_servers():
    """[(what, server, what its line must say)]."""
    recording = Recording("quiet")
    text = recording.text(0, job="stale").encode()
    cases = [
        ("garbage as text", saying(answer(bytes(range(256)) * 64)), "read exposition 'line"),
        ("garbage for HTTP", saying(b"\0\xff" * 4096), "no HTTP, or is cut off"),
        ("cut text", saying(answer(text[: len(text) // 2])), "cut off|read exposition 'line"),
        ("cut connection", saying(answer(text[: len(text) // 2], claimed=len(text))), "cut off"),
        ("stale", saying(answer(text)), "the same one again: nothing to compare"),
        ("foreign", saying(answer(FOREIGN.encode())), "not a scrape of kitty"),
        ("drips", dripping, "Connection timed out"),
        ("endless headers", endless_headers, "cut off"),
        ("silent", silent, "Connection timed out"),
        ("500", saying(answer(b"no\n", "500 Internal Server Error")), "the server answers 500"),
    ]
    return [(what, Server(BAD_PORT + i, behave), says) for i, (what, behave, says) in enumerate(cases)]


def bad_names():
    """[(what, target, what its line must say)] of targets that no server stands behind."""
    cases = [
        ("refused", f"127.0.0.1:{BAD_PORT + 19}", "Connection refused"),
        ("unroutable", UNROUTABLE, "Network is unreachable"),
        ("https", "https://127.0.0.1:9410/metrics", "kitty speaks no TLS"),
        ("unknown name", "no-such-host.invalid:9100", "no server of /etc/resolv.conf answers"),
        ("no file", "./no-such-scrape.txt", "no such file, and a path needs http://"),
        ("blackholed", BLACKHOLE, "Connection timed out"),
    ]
    # A neighbour that a veth's other end does not know: what is sent to it is lost.
    run("ip", "link", "add", "hole", "type", "veth", "peer", "name", "bottom")
    run("ip", "addr", "add", "10.98.0.1/24", "dev", "hole")
    run("ip", "link", "set", "bottom", "up")
    run("ip", "link", "set", "hole", "up")
    run("ip", "neigh", "add", BLACKHOLE.split(":")[0], "lladdr", "02:00:00:00:98:02", "dev", "hole")
    return cases


class Said:
    def __init__(self, kitty, *arguments):
        started = time.monotonic()
        done = subprocess.run([kitty, "diagnose", *arguments], capture_output=True, text=True, timeout=120)
        self.took_s = time.monotonic() - started
        self.status, self.text, self.errors = done.returncode, done.stdout, done.stderr

    def expect(self, status, *texts):
        expect(self.status == status, f"expected exit status {status}, seen {self.status}:\n{self.text}{self.errors}")
        for text in texts:
            expect(text in self.text + self.errors, f"expected {text!r}, seen:\n{self.text}{self.errors}")

    def expect_not_judged(self, what, target, says):
        lines = [line for line in self.text.splitlines() if line.startswith(f"not judged: {target}: ")]
        expect(len(lines) == 1, f"{what}: expected one line of {target}, seen {lines}:\n{self.text}")
        expect(re.search(says, lines[0]), f"{what}: expected {says!r}, seen {lines[0]!r}")


def side_by_side(kitty):
    names = bad_names()
    with contextlib.ExitStack() as stack:
        bad = [(what, stack.enter_context(server).target, says) for what, server, says in bad_servers()]
        bad += names
        good = stack.enter_context(Good("egress_20", FAULT_S["egress_20"]))
        mixed = [target for _, target, _ in bad[::2]] + good.targets + [target for _, target, _ in bad[1::2]]
        said = Said(kitty, f"--window={WINDOW_S}", *mixed)
        said.expect(1, f"job train  4 ranks  VERDICT: THROTTLE at rank 2 (node {good.targets[2]})")
        for one in bad:
            said.expect_not_judged(*one)
        for target in good.targets:
            expect(f"not judged: {target}" not in said.text, f"a good target is not judged:\n{said.text}")
        limit_s = WINDOW_S + FETCH_S + SLACK_S
        expect(said.took_s < limit_s, f"expected an end within {limit_s} s, seen {said.took_s:.1f} s")
        print(f"  {len(bad)} bad targets beside 4 good ones: named rank 2 in {said.took_s:.1f} s")


def nothing_but_bad(kitty):
    with contextlib.ExitStack() as stack:
        bad = [(what, stack.enter_context(server).target, says) for what, server, says in bad_servers()]
        live = [one for one in bad if one[0] != "stale"]
        said = Said(kitty, "--window=3", *(target for _, target, _ in live))
        said.expect(2, "VERDICT: NO DATA")
        for one in live:
            said.expect_not_judged(*one)
        expect(said.took_s < FETCH_S + SLACK_S, f"expected an end with the fetches', seen {said.took_s:.1f} s")
        print(f"  {len(live)} bad targets alone: no data, in {said.took_s:.1f} s")


def exit_statuses(kitty):
    with Good("quiet") as good:
        said = Said(kitty, "--window=4", *good.targets)
        said.expect(0, "VERDICT: HEALTHY")
        said = Said(kitty, "--window=4", *good.targets, "https://127.0.0.1/")
        said.expect(2, "VERDICT: HEALTHY", "not judged: https://127.0.0.1/: ")
    Said(kitty, "https://127.0.0.1/").expect(3, "kitty speaks no TLS")
    Said(kitty, "--window=4", f"127.0.0.1:{BAD_PORT + 19}").expect(2, "Connection refused")
    print("  0 healthy, 2 with a target missing, 3 where no target can be one")


def every_recording(kitty):
    wanted = {"loss_5": "LOSS at rank 2 (node 127.0.0.1:9412)", "link": "LINK rank 1 (node 127.0.0.1:9411) - rank 2"}
    with contextlib.ExitStack() as stack:
        drip = stack.enter_context(Server(BAD_PORT, dripping))
        for case, headline in wanted.items():
            with Good(case, FAULT_S[case]) as good:
                said = Said(kitty, "--window=6", *good.targets, drip.target)
                said.expect(1, f"VERDICT: {headline}")
                said.expect_not_judged("drips", drip.target, "Connection timed out")
                print(f"  {case}: {said.text.splitlines()[0]}")


def saved_files(kitty):
    """Clocks hours apart, and files that grep has been through."""
    recording = Recording("egress_20")
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for rank in range(4):
            for number, time_s in enumerate((5, 8, 11)):
                paths.append(os.path.join(folder, f"n{rank}-{number}.txt"))
                with open(paths[-1], "w") as file:
                    file.write(recording.text(time_s, rank))
                skewed_s = 1_700_000_000 + time_s + (5 * 3600 if rank == 1 else 0)
                os.utime(paths[-1], (skewed_s, skewed_s))
        said = Said(kitty, *paths)
        said.expect(1, "VERDICT: THROTTLE at rank 2 (node n2)", "s apart: stale, or clocks differ")

        filtered = os.path.join(folder, "filtered.txt")
        lines = recording.text(5, 0).splitlines(keepends=True)
        with open(filtered, "w") as file:
            file.writelines(line for line in lines if "kitty_peer_" in line)
        said = Said(kitty, *paths, filtered)
        said.expect(1, "VERDICT: THROTTLE at rank 2 (node n2)")
        said.expect_not_judged("filtered", filtered, "unfiltered")
        print(f"  clocks 5 h apart, and a file that grep made: {said.text.splitlines()[-1].split(': ', 2)[2]}")


def text_beyond(processes, peers, agent=0):
    """Of so many processes, each a job of its own, with so many peers."""
    lines = ['kitty_build_info{version="1"} 1', 'kitty_rtt_hook_info{hook="none"} 1']
    for pid in range(processes):
        labels = f'pid="{pid}",rank="{pid}",job="{agent}-{pid}"'
        lines += [f'kitty_peer_tx_queue_bytes{{{labels},peer="{peer}"}} 1' for peer in range(peers)]
        lines.append(f'kitty_process_info{{{labels},role="rank",start_time_ticks="{agent}"}} 1')
    return ("\n".join(lines) + "\n").encode()


def beyond_the_bounds(kitty):
    """Texts with more than an agent keeps: it took over a minute to judge one. At the bounds they are judged."""
    texts = {
        "42,000 jobs": (text_beyond(42_000, 0), "more than 1024 processes: not a scrape of kitty"),
        "50,000 peers": (text_beyond(1, 50_000), "more than 64 peers of a process"),
        "5 MB": (b"# x\n" * 1_250_000, "more than 4 MiB: not a scrape of kitty"),
        "1,024 jobs": (text_beyond(1024, 30), "the same one again: nothing to compare"),
    }
    with contextlib.ExitStack() as stack:
        servers = {
            what: stack.enter_context(Server(BAD_PORT + i, saying(answer(text))))
            for i, (what, (text, _)) in enumerate(texts.items())
        }
        for what, server in servers.items():
            said = Said(kitty, "--window=3", server.target)
            said.expect(2)
            said.expect_not_judged(what, server.target, texts[what][1])
            expect(said.took_s < FETCH_S + SLACK_S, f"{what}: took {said.took_s:.1f} s")
            print(f"  {what}, {len(texts[what][0])} bytes: {said.took_s:.1f} s")


CASES = {
    "side-by-side": side_by_side,
    "nothing-but-bad": nothing_but_bad,
    "exit-statuses": exit_statuses,
    "every-recording": every_recording,
    "saved-files": saved_files,
    "beyond-the-bounds": beyond_the_bounds,
}


def main(cases, description, *switches):
    """main() of a test whose cases take the program's path, in a network namespace of its own. `switches`: flags that
    the caller reads from sys.argv by itself."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("kitty")
    parser.add_argument("--cases", default=",".join(cases))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    for switch in switches:
        parser.add_argument(switch, action="store_true")
    given = parser.parse_args()
    try:
        if os.geteuid() != 0:
            raise Missing("root")
        for program in ("unshare", "ip"):
            if not shutil.which(program):
                raise Missing(f"{program} (packages util-linux, iproute2)")
        isolate(given.inside, "--net")
        kitty = os.path.abspath(given.kitty)
        chosen = [name for name in cases if cases[name] in choose(parser, given.cases, cases)]
        return run_cases((name, lambda name=name: cases[name](kitty) or "as above") for name in chosen)
    except Missing as missing:
        print(f"SKIP: {missing} is missing")
        return 77


if __name__ == "__main__":
    sys.exit(main(CASES, __doc__))
