#!/usr/bin/env python3
"""The agent under attack by its HTTP clients: nothing of theirs starves a scrape, grows memory, or stops collection.

    hostile_test.py KITTY [--cases NAME,...] [--seconds S]

Beside each attack a client of good will asks for /metrics ten times a second, on a new connection each time and on one
that it keeps (which it opens again where the agent closed it, as every scraper does). Each case prints a line. Some of
the attackers are Debian's slowhttptest and wrk. Needs root. Runs in pid and network namespaces of its own and takes
about four minutes. Exit status 0 when every case holds.
"""

import argparse
import collections
import errno
import itertools
import multiprocessing
import os
import re
import resource
import select
import shutil
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import OWN_PIDS, TRAFFIC, Failure, Lab, isolate  # noqa: E402
from witness_test import expect  # noqa: E402

PORT, ECHO_PORT = 9480, 9481
ATTACK_S = 4
ANSWER_LIMIT_S = 1
LINE_LIMIT_S = 8  # where thousands of hosts ask for megabytes each, all stand in line; Prometheus waits for 10 s
STOP_LIMIT_S = 2
GROWTH_LIMIT_BYTES = 8 << 20
CONNECTION_LIMIT = 64  # kMaxConnections of http/server.h
READING_DESCRIPTORS = 8  # what the agent opens for a moment to read /proc
# A response's deadline (http/server.h) and slack: from then on nothing may be queued for an attacker that is gone.
GIVEN_UP_S = 8
# SO_SNDBUF as the kernel doubles it, http/listen_address.cpp; some of those that end and begin while the table is read
# stand there both.
SEND_QUEUE_LIMIT_BYTES = (CONNECTION_LIMIT + 16) * (512 << 10)
APPEARS_S = 20
SLEEPERS, SLEEPER_JOB = 300, '"' * 128  # a label at its limit, and each character of it escaped: 2.7 MB of text
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"  # goes on
NO_LINGER = struct.pack("=ii", 1, 0)


# The client of good will


class Scraper:
    """GET /metrics over one connection."""

    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", PORT), timeout=10 * ANSWER_LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self):
        """The body; ConnectionError where the agent has closed the connection, a Failure where it is no whole 200."""
        self.socket.sendall(REQUEST)
        answer = bytearray()
        while (end := answer.find(b"\r\n\r\n")) < 0:
            self._more(answer)
        head = bytes(answer[:end])
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        expect(head.startswith(b"HTTP/1.1 200 ") and length, f"expected 200 with a length, seen {head!r}")
        body = answer[end + 4 :]
        while len(body) < int(length[1]):
            self._more(body)
        return bytes(body)

    def _more(self, buffer):
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionResetError("closed")
        buffer += data

    def close(self):
        self.socket.close()


class GoodWill:
    """Both of its ways to ask, and how long each took, connecting included."""

    def __init__(self):
        self.kept = None
        self.anew = self.reopened = 0
        self.latencies = []
        self.text = b""

    def _anew(self):
        """A connection just made, and its answer."""
        scraper = Scraper()
        return scraper, scraper.get()

    def ask(self):
        started = time.monotonic()
        scraper, self.text = self._anew()
        scraper.close()
        self.latencies.append(time.monotonic() - started)
        self.anew += 1

        started = time.monotonic()
        if self.kept:
            try:
                self.kept.get()
            except ConnectionError:
                self.close()
                self.reopened += 1
        if not self.kept:
            self.kept, _ = self._anew()
        self.latencies.append(time.monotonic() - started)

    def close(self):
        if self.kept:
            self.kept.close()
            self.kept = None


# Attackers. Each runs in a process of its own.


class Swarm:
    """Many connections at once, each opened anew when it ends: the most that one process does with them.

    Sends `opening` on each, then `drip` each `interval_s` (0: as fast as it is taken). What comes is read and its status
    lines counted, or with reads=False never read. `source`: its address, or a list of them, each taken in turn.
    """

    def __init__(self, count, opening=b"", drip=b"", interval_s=0.0, reads=True, half_close=False, opens_per_s=None,
                 source="127.0.0.1"):  # fmt: skip
        self.count = count
        self.sources = [source] if isinstance(source, str) else source
        self.opening = opening if isinstance(opening, list) else [opening]
        self.drip = drip
        self.interval_s = interval_s
        self.reads = reads
        self.half_close = half_close
        self.opens_per_s = opens_per_s
        self.statuses = collections.Counter()
        self.opened = self.ended = 0

    def attack(self, seconds):
        self.epoll = select.epoll()
        self.connections = {}
        started = time.monotonic()
        deadline = started + seconds
        dripped = started
        while (now := time.monotonic()) < deadline:
            allowed = self.count
            if self.opens_per_s:
                allowed = min(allowed, len(self.connections) + int((now - started) * self.opens_per_s) - self.opened)
            for _ in range(min(200, allowed - len(self.connections))):
                self._open()
            due = bool(self.drip) and now >= dripped + self.interval_s
            if due:
                dripped = now
                for connection in list(self.connections.values()):
                    if not connection[1]:
                        self._send(connection, self.drip)
            for fd, events in self.epoll.poll(0.002 if self.drip and self.interval_s == 0 else 0.02):
                if (connection := self.connections.get(fd)) is None:
                    continue
                if events & select.EPOLLIN and self.reads:
                    self._read(connection)
                elif events & (select.EPOLLERR | select.EPOLLHUP):
                    self._end(connection)
                elif events & select.EPOLLOUT:
                    self._send(connection, b"")
        for connection in list(self.connections.values()):
            connection[0].close()
        return f"{self.opened} opened, {self.ended} ended by the agent", self.statuses

    def _open(self):
        client = socket.socket()
        client.setblocking(False)
        if not self.reads:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setsockopt(socket.SOL_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        client.bind((self.sources[self.opened % len(self.sources)], 0))
        if client.connect_ex(("127.0.0.1", PORT)) not in (0, errno.EINPROGRESS):
            client.close()
            return
        self.connections[client.fileno()] = [client, self.opening[self.opened % len(self.opening)], True]
        self.epoll.register(client, select.EPOLLOUT | (select.EPOLLIN if self.reads else 0))
        self.opened += 1

    def _send(self, connection, more):
        client, pending, opening = connection
        pending += more
        try:
            sent = client.send(pending) if pending else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            return self._end(connection)
        connection[1] = pending[sent:]
        if not connection[1] and opening:
            connection[2] = False
            if self.half_close:
                try:
                    client.shutdown(socket.SHUT_WR)
                except OSError:  # the agent was quicker
                    return self._end(connection)
        wanted = (select.EPOLLIN if self.reads else 0) | (select.EPOLLOUT if connection[1] else 0)
        self.epoll.modify(client, wanted)

    def _read(self, connection):
        try:
            data = connection[0].recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for status in re.findall(rb"HTTP/1\.1 (\d\d\d) ", data):
            self.statuses[int(status)] += 1
        if not data:
            self._end(connection)

    def _end(self, connection):
        self.ended += 1
        self.connections.pop(connection[0].fileno())
        connection[0].close()


class Resets:
    """Connections opened and reset at once, as fast as it goes."""

    def attack(self, seconds):
        deadline = time.monotonic() + seconds
        opened = failed = 0
        while time.monotonic() < deadline:
            with socket.socket() as client:
                client.settimeout(seconds)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                try:
                    client.connect(("127.0.0.1", PORT))
                    opened += 1
                    if opened % 2:
                        client.sendall(REQUEST)
                except OSError:  # evicted before it could, or one of the host's limits on connections
                    failed += 1
        return f"{opened} opened and reset, {failed} failed", collections.Counter()


class Bytewise:
    """Whole requests, a segment for each byte."""

    def attack(self, seconds):
        deadline = time.monotonic() + seconds
        statuses = collections.Counter()
        while time.monotonic() < deadline:
            with socket.create_connection(("127.0.0.1", PORT), timeout=5) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for at in range(len(REQUEST)):
                    client.send(REQUEST[at : at + 1])
                    time.sleep(0.0005)
                statuses[int(client.recv(65536)[9:12])] += 1
        return f"{sum(statuses.values())} requests", statuses


HELLO_RECORD = bytes.fromhex("160301002a010000260303") + bytes(32) + bytes.fromhex("0000021301010000")
PIPELINE = 5000
METHODS = [f"{method} /metrics HTTP/1.1\r\n\r\n".encode() for method in ("POST", "PUT", "DELETE", "TRACE", "CONNECT",
           "OPTIONS", "BREW", "get", "G" * 4000)]  # fmt: skip
# As a swarm of hosts would come: none of them has more than two connections.
MANY = [f"127.9.{at // 250}.{1 + at % 250}" for at in range(2000)]
RANGES = GET + b"Range: bytes=0-" + b",0-" * 2000 + b"\r\n\r\n"
LONG_HEADS = [b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"GET /?" + b"a=b&" * 25_000 + b" HTTP/1.1\r\n\r\n"]

# name: (attackers, the statuses that they may be answered with). Nothing but these, and at least one where any is given.
# They come from the address of the client of good will, as behind a proxy, except where the name says otherwise: then
# the connection that it keeps must last.
ATTACKS = {
    "24 idle": ([Swarm(24)], {}),
    "40 drip a byte a second": ([Swarm(40, b"G", b"G", 1)], {408}),
    "200 drip a byte a second": ([Swarm(200, b"G", b"G", 1)], {}),
    "200 drip a header a second": ([Swarm(200, b"GET /metrics HTTP/1.1\r\n", b"X-a: b\r\n", 1)], {}),
    "3,000 connections": ([Swarm(3000)], {}),
    "3,000 whole requests": ([Swarm(3000, REQUEST)], {200}),
    "3,000 connections, other address": ([Swarm(3000, source="127.0.0.2")], {}),
    "3,000 whole requests, other address": ([Swarm(3000, REQUEST, source="127.0.0.2")], {200}),
    "3,000 connections, 2,000 addresses": ([Swarm(3000, source=MANY)], {}),
    "3,000 whole requests, 2,000 addresses": ([Swarm(3000, REQUEST, source=MANY)], {200}),
    "3,000 begin a head, 2,000 addresses": ([Swarm(3000, GET, source=MANY)], {}),
    "half-closed at once, 2,000 addresses": ([Swarm(3000, b"", half_close=True, source=MANY)], {}),
    "endless header lines": ([Swarm(40, b"GET /metrics HTTP/1.1\r\n", b"X-a: bbbbbbbbbbbbbbbbb\r\n" * 200)], {431}),
    "endless header line": ([Swarm(40, b"GET /metrics HTTP/1.1\r\nX-a: ", b"a" * 8192)], {431}),
    "huge bodies": ([Swarm(40, b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", bytes(65536))], {405}),
    "huge GET bodies": ([Swarm(40, GET + b"Content-Length: 99999999999\r\n\r\n", bytes(65536))], {400}),
    "chunked bodies": (
        [Swarm(40, GET + b"Transfer-Encoding: chunked\r\n\r\n", b"ffff\r\n" + bytes(65535) + b"\r\n")],
        {400},
    ),
    "Expect: 100-continue": ([Swarm(100, GET + b"Expect: 100-continue\r\n\r\n")], {400}),
    "ranges": ([Swarm(100, RANGES)], {400}),
    "methods": ([Swarm(100, METHODS)], {400, 405}),
    "100 kB URLs": ([Swarm(100, LONG_HEADS)], {431}),
    "HTTP/0.9": ([Swarm(100, b"GET /metrics\r\n\r\n")], {400}),
    "HTTP/2 preface": ([Swarm(100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")], {405}),
    "TLS hello": ([Swarm(40, HELLO_RECORD)], {408}),
    "noise": ([Swarm(40, [os.urandom(300), bytes(10_000), b"\r\n" * 5000, b"\n\n\n\n"])], {400, 408, 431}),
    "opened and reset": ([Resets(), Resets()], {}),
    "half-closed at once": ([Swarm(200, b"", half_close=True)], {}),
    "half-closed requests": ([Swarm(200, REQUEST, half_close=True)], {200}),
    "a segment a byte": ([Bytewise(), Bytewise()], {200}),
    "pipelines": ([Swarm(20, REQUEST * PIPELINE)], {200}),
}
# While a text is large.
LARGE_ATTACKS = {
    "pipelines": ([Swarm(4, REQUEST * PIPELINE)], {200}),
    # From the scraper's own address nothing tells its requests from these.
    "200 whole requests, other address": ([Swarm(200, REQUEST, source="127.0.0.2")], {200}),
    "slow readers, other address": ([Swarm(400, REQUEST, reads=False, opens_per_s=50, source="127.0.0.2")], {}),
    "3,000 connections, 2,000 addresses": ([Swarm(3000, source=MANY)], {}),
    "3,000 begin a head, 2,000 addresses": ([Swarm(3000, GET, source=MANY)], {}),
    "slow readers, 2,000 addresses": ([Swarm(4000, REQUEST, reads=False, opens_per_s=400, source=MANY)], {}),
    "200 whole requests, 200 addresses": ([Swarm(200, REQUEST, source=MANY[:200])], {200}),
    "slow readers": ([Swarm(400, REQUEST, reads=False, opens_per_s=50)], {}),
    "slow readers, many": ([Swarm(4000, REQUEST, reads=False, opens_per_s=400)], {}),
    "slow readers, pipelines": ([Swarm(400, REQUEST * 100, reads=False, opens_per_s=50)], {}),
    "slow readers, half-closed": ([Swarm(4000, REQUEST, reads=False, half_close=True, opens_per_s=400)], {}),
    "slow readers, last request": (
        [Swarm(4000, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", reads=False, opens_per_s=400)],
        {},
    ),
}
# No scrape is cut off, but each stands in line.
IN_LINE = {"3,000 whole requests, 2,000 addresses"}


class Attackers:
    """The attackers of a case, each in a process of its own for so many seconds. What they did is in `did`."""

    def __init__(self, attackers, seconds):
        self.attackers = attackers
        self.seconds = seconds
        self.did = ""
        self.statuses = collections.Counter()

    def __enter__(self):
        context = multiprocessing.get_context("fork")
        self.running = []
        for attacker in self.attackers:
            theirs, ours = context.Pipe()
            process = context.Process(
                target=lambda one=attacker, pipe=theirs: pipe.send(one.attack(self.seconds)), daemon=True
            )
            process.start()
            theirs.close()
            self.running.append((process, ours))
        return self

    def finish(self):
        for process, pipe in self.running:
            try:
                expect(pipe.poll(self.seconds + 10), "an attacker did not end")
                did, statuses = pipe.recv()
            except EOFError:
                raise Failure("an attacker broke; it said why above") from None
            self.did = ", ".join(filter(None, (self.did, did)))
            self.statuses += statuses

    def __exit__(self, *_):
        for process, pipe in self.running:
            process.kill()
            process.join()
            pipe.close()


class Program:
    """A real client as the attacker: a command that ends by itself, told to within the attack's time."""

    def __init__(self, command, interesting):
        self.command = command
        self.interesting = re.compile(interesting)

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command,
            env={"PATH": os.environ["PATH"], "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.statuses = collections.Counter()
        return self

    def finish(self):
        text, _ = self.process.communicate(timeout=30)
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
        found = list(dict.fromkeys(" ".join(match[0].split()) for match in self.interesting.finditer(text)))
        expect(found, f"{self.command[0]} said nothing of what it did: {text[-500:]}")
        self.did = f"{self.command[0]}: {', '.join(found)}"

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


# The agent, and what an attack does to it


def queued_bytes():
    """What the kernel holds for the agent's clients to take, sockets that the agent has closed included."""
    queued = 0
    with open("/proc/self/net/tcp", encoding="ascii") as table:
        for line in itertools.islice(table, 1, None):
            fields = line.split()
            if fields[1].endswith(f":{PORT:04X}"):
                queued += int(fields[4].split(":")[0], 16)
    return queued


class Victim:
    """An agent whose watched process has traffic, and what it is like when nobody attacks."""

    def __init__(self, kitty, lab):
        self.lab = lab
        self.log = os.fdopen(os.memfd_create("agent-log"), "w+")
        self.process = subprocess.Popen(
            [kitty, f"--web.listen-address=127.0.0.1:{PORT}"],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        lab.processes.append(self.process)
        self._watched(TRAFFIC[0], *TRAFFIC[1:], "echo", "127.0.0.1", str(ECHO_PORT))
        sender = self._watched(
            *TRAFFIC, "send", "127.0.0.1", str(ECHO_PORT), "--interval", "0.02", KITTY_WATCH="1", RANK="0"
        )
        self.ticking = re.compile(rb'\nkitty_tcp_segments_sent_total\{pid="%d",[^\n]*\} (\S+)' % sender.pid)
        self.wait("the traffic", lambda text: self.ticking.search(text))

    def _watched(self, *command, **environment):
        process = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], **environment}, stdin=subprocess.DEVNULL
        )
        self.lab.processes.append(process)
        return process

    def wait(self, what, condition):
        deadline = time.monotonic() + APPEARS_S
        while True:
            self.check()
            try:
                scraper = Scraper()
                text = scraper.get()
                scraper.close()
                if condition(text):
                    return
            except ConnectionError:
                pass  # not listening yet
            expect(time.monotonic() < deadline, f"expected within {APPEARS_S} s: {what}:\n{self.output()}")
            time.sleep(0.2)

    def grow(self):
        """Makes the text large: many watched processes, with the longest of labels."""
        for rank in range(SLEEPERS):
            self._watched("sleep", "600", KITTY_WATCH="1", RANK=str(rank), JOB_NAME=SLEEPER_JOB)
        self.wait("all sleepers", lambda text: text.count(b"kitty_process_info{") == SLEEPERS + 1)

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def check(self):
        status = self.process.poll()
        expect(status is None, f"the agent ended by itself with status {status}:\n{self.output()}")

    def size(self):
        """(resident bytes, descriptors)"""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            resident = int(re.search(r"VmRSS:\s*(\d+) kB", status.read())[1]) << 10
        return resident, len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rest(self):
        """Waits until nothing of an attack is left, with a scraper as in quiet times; returns the size then."""
        good_will = GoodWill()
        for _ in range(5):
            good_will.ask()
            time.sleep(0.1)
        good_will.close()
        time.sleep(0.6)  # a tick
        self.check()
        return self.size()

    def under(self, attack, seconds, allowed, keeps=False, in_line=False):
        """The attack, with the client of good will beside it; a line of figures, a Failure where it did harm.

        `allowed`: statuses; `keeps`: whether the connection that the client of good will keeps must last; `in_line`:
        whether it has to wait its turn among many others that take all of their answers.
        """
        idle = self.rest()
        good_will = GoodWill()
        resident, descriptors, queued, moved, stood, last = 0, 0, 0, [], 0.0, None
        with attack:
            deadline = time.monotonic() + seconds
            while (now := time.monotonic()) < deadline:
                try:
                    good_will.ask()
                except OSError as error:
                    raise Failure(f"the client of good will was refused: {error}") from None
                value = self.ticking.search(good_will.text)
                expect(value, "the watched process's counter is gone")
                if not moved or value[1] != moved[-1]:
                    moved.append(value[1])
                    last = now
                stood = max(stood, now - last)
                size = self.size()
                resident, descriptors = max(resident, size[0]), max(descriptors, size[1])
                if good_will.anew % 5 == 1:  # the table is long
                    queued = max(queued, queued_bytes())
                time.sleep(max(0, now + 0.1 - time.monotonic()))
            attack.finish()
        good_will.close()
        self.check()
        given_up = time.monotonic() + GIVEN_UP_S
        while (left := queued_bytes()) and time.monotonic() < given_up:
            time.sleep(0.1)
        slowest = max(good_will.latencies)
        statuses = " ".join(f"{status}:{count}" for status, count in sorted(attack.statuses.items()))
        figures = (
            f"{good_will.anew} scrapes each way, slowest {slowest * 1e3:.0f} ms, kept one opened again "
            f"{good_will.reopened}; RSS {idle[0] >> 10} -> {resident >> 10} KiB, "
            f"descriptors {idle[1]} -> {descriptors}, queued {queued >> 10} KiB; {attack.did}{'; ' + statuses if statuses else ''}"
        )
        expect(good_will.anew >= (1 if in_line else seconds), f"too few scrapes: {figures}")
        limit_s = LINE_LIMIT_S if in_line else ANSWER_LIMIT_S
        expect(slowest < limit_s, f"a scrape took longer than {limit_s} s: {figures}")
        expect(resident - idle[0] <= GROWTH_LIMIT_BYTES, f"memory grew: {figures}")
        expect(descriptors <= idle[1] + CONNECTION_LIMIT + READING_DESCRIPTORS, f"descriptors grew: {figures}")
        expect(queued <= SEND_QUEUE_LIMIT_BYTES, f"the kernel holds too much: {figures}")
        expect(left == 0, f"{left} bytes are still queued for clients given up: {figures}")
        moving = len(moved) >= 2 and stood < 2 or in_line and len(moved) == good_will.anew
        expect(moving, f"the metrics stood still for {stood:.1f} s: {figures}")
        expect(not keeps or good_will.reopened == 0, f"the connection kept was closed: {figures}")
        expect(set(attack.statuses) <= set(allowed), f"expected only {allowed}: {figures}")
        expect(not allowed or attack.statuses, f"expected some of {allowed}: {figures}")
        return figures

    def terminate(self):
        started = time.monotonic()
        self.process.terminate()
        try:
            status = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"expected an end within {STOP_LIMIT_S} s of SIGTERM, seen none") from None
        took = time.monotonic() - started
        expect(status == 0, f"expected status 0 after SIGTERM, seen {status}:\n{self.output()}")
        return f"SIGTERM to exit 0 {took:.2f} s"


# Cases: each takes a Victim, prints its lines, and returns how many attacks did harm.


def attempt(name, what):
    try:
        print(f"{name}: {what()}", flush=True)
        return 0
    except Failure as failure:
        print(f"{name}: FAILED: {failure}", flush=True)
        return 1


def run_attacks(victim, seconds, table, prefix=""):
    failed = 0
    for name, (attackers, allowed) in table.items():
        attack, keeps, in_line = Attackers(attackers, seconds), "other address" in name, name in IN_LINE
        failed += attempt(
            prefix + name, lambda a=attack, s=allowed, k=keeps, i=in_line: victim.under(a, seconds, s, k, prefix and i)
        )
    return failed


def attacks(victim, seconds):
    """What clients can do to an agent with a text of the usual size."""
    return run_attacks(victim, seconds, ATTACKS)


URL = f"http://127.0.0.1:{PORT}/metrics"


def programs(victim, seconds):
    """slowhttptest in its four modes, and wrk for load; what they say of themselves is information only."""
    failed = 0
    slow = ["slowhttptest", "-c", "200", "-r", "200", "-l", str(seconds), "-p", "1", "-u", URL]
    modes = {
        "slow headers": ["-H", "-i", "1", "-x", "24"],
        "slow body": ["-B", "-i", "1", "-s", "8192", "-x", "24"],
        "range": ["-R", "-a", "5", "-b", "2000"],
        "slow read": ["-X", "-n", "1", "-w", "10", "-y", "20", "-z", "32", "-k", "3"],
    }
    for name, options in modes.items():
        program = Program([*slow, *options], r"(?m)service available:\s*\w+$|Exit status:.*")
        failed += attempt(f"slowhttptest, {name}", lambda p=program: victim.under(p, seconds, ()))
    load = Program(["wrk", "-t2", "-c50", f"-d{seconds}", "--latency", URL],
                   r"Requests/sec:\s*\S+|(?m:^\s*(?:50|99)%.*)|Socket errors.*|Non-2xx.*")  # fmt: skip
    return failed + attempt("wrk", lambda: victim.under(load, seconds, ()))


def large(victim, seconds):
    """The same where the text is so large that it does not fit into sockets."""
    victim.grow()
    good_will = GoodWill()
    good_will.ask()
    good_will.close()
    print(f"large: {len(good_will.text)} bytes of text", flush=True)
    return run_attacks(victim, seconds, LARGE_ATTACKS, "large: ")


def end(victim, _):
    """SIGTERM in the midst of drippers and slow readers."""
    attackers = [Swarm(200, b"G", b"G", 1), Swarm(100, REQUEST, reads=False)]
    with Attackers(attackers, STOP_LIMIT_S + 1):
        time.sleep(1)
        return attempt("SIGTERM", victim.terminate)


CASES = {case.__name__: case for case in (attacks, programs, large, end)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seconds", type=int, default=ATTACK_S)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # of the namespaces
    given = parser.parse_args()
    names = given.cases.split(",")
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    for program in ("slowhttptest", "wrk") if "programs" in names else ():
        if not shutil.which(program):
            print(f"SKIP: {program} (package {program}) is missing")
            return 77
    isolate(given.inside, "--net", *OWN_PIDS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    failed = 0
    with Lab() as lab:
        try:
            victim = Victim(os.path.abspath(given.kitty), lab)
            for name in names:
                failed += CASES[name](victim, given.seconds)
        except Failure as failure:
            failed += 1
            print(f"FAILED: {failure}")
    print(f"{failed} failed" if failed else "all held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
