#!/usr/bin/env python3
"""Targets by name: what a DNS server of the test's own says, where there is none, and where it fails or never answers;
and link-local addresses with their interface.

    names_test.py KITTY

Runs itself in a network and a mount namespace of its own, whose /etc/resolv.conf names the test's server. Needs root.
Exit status 0 when every case holds, 77 where it cannot run.
"""

import http.server
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import expect, isolate, run, run_cases  # noqa: E402

PORT = 9436
APPEARS_S = 20
A, CNAME, AAAA = 1, 5, 28  # RFC 1035, 3.2.2; RFC 3596
NAMES = {
    ("n0.train.example", A): [(A, socket.inet_aton("127.0.0.1"))],
    ("alias.example", A): [(CNAME, b"\x02n0\x05train\x07example\x00"), (A, socket.inet_aton("127.0.0.1"))],
    ("six.example", AAAA): [(AAAA, socket.inet_pton(socket.AF_INET6, "::1"))],
    ("short.example", A): [(A, b"\x7f\x00")],  # two bytes are no address
}
FAILS = {("six-only.example", A), ("broken.example", A), ("broken.example", AAAA)}  # SERVFAIL
NAMES["six-only.example", AAAA] = [(AAAA, socket.inet_pton(socket.AF_INET6, "::1"))]
ANSWERS_S = 5  # a target's whole time


class Dns:
    """A server on port 53 that knows NAMES; `silent`: one that takes queries and says nothing."""

    def __init__(self, silent=False):
        self.silent = silent
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.socket.settimeout(0.1)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()
        self.socket.close()

    def serve(self):
        while not self.stopping.is_set():
            try:
                query, peer = self.socket.recvfrom(4096)
            except TimeoutError:
                continue
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]].decode())
                at += 1 + query[at]
            name, kind = ".".join(labels).lower(), struct.unpack_from("!H", query, at + 1)[0]
            self.asked.append(name)
            if self.silent:
                continue
            records = NAMES.get((name, kind), [])
            exists = any(known == name for known, _ in NAMES)
            status = 2 if (name, kind) in FAILS else 0 if exists else 3
            head = struct.pack("!HHHHHH", struct.unpack_from("!H", query)[0], 0x8180 | status, 1,
                               len(records), 0, 0)  # fmt: skip
            body = b"".join(struct.pack("!HHHIH", 0xC00C, k, 1, 60, len(data)) + data for k, data in records)
            self.socket.sendto(head + query[12 : at + 5] + body, peer)


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6  # and, mapped, IPv4


def reached(kitty, name):
    """Whether a target was found and asked: what answers is no scrape, and kitty says so. Else what it says."""
    done = subprocess.run([kitty, "diagnose", "--window=1s", f"{name}:{PORT}"], capture_output=True, text=True,
                          timeout=30)  # fmt: skip
    expect(done.returncode == 2, f"expected status 2, seen {done.returncode}: {done.stdout}{done.stderr}")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("not judged:")]
    return "resolve" not in line, line


def found(kitty):
    with Dns() as dns:
        for name in ("n0.train.example", "n0", "alias.example", "six.example", "N0.TRAIN.EXAMPLE"):
            was, line = reached(kitty, name)
            expect(was, line)
        expect("n0.train.example" in dns.asked, f"the search list was not used: {dns.asked}")
    return f"{len(dns.asked)} queries"


def unknown(kitty):
    with Dns():
        for name in ("gone.example", "short.example"):
            was, line = reached(kitty, name)
            expect(not was and "no name of the DNS" in line, line)
    return line


def failing(kitty):
    """A server that fails for IPv4 addresses is asked for IPv6 ones, too."""
    with Dns():
        was, line = reached(kitty, "six-only.example")
        expect(was, line)
        was, line = reached(kitty, "broken.example")
        expect(not was and "or it fails" in line, line)
    return line


def scoped(kitty):
    """A link-local address is of an interface: as a target, and to listen on."""
    run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
    for end in ("d0", "d1"):
        run("ip", "link", "set", end, "up")
    deadline = time.monotonic() + APPEARS_S
    while not (lines := run("ip", "-6", "-o", "addr", "show", "dev", "d0", "scope", "link", "-tentative").strip()):
        expect(time.monotonic() < deadline, "d0 has no link-local address")
        time.sleep(0.1)
    address = re.search(r"inet6 (\S+)/", lines)[1]
    for target in (f"[{address}%d0]", f"http://[{address}%25d0]"):
        was, line = reached(kitty, target)
        expect(was and "connect" not in line, line)
    was, line = reached(kitty, f"[{address}%d9]")
    expect(not was and "no interface" in line, line)
    was, line = reached(kitty, f"[{address}]")
    expect("needs its interface" in line, line)

    listen = f"--web.listen-address=[{address}%d0]:{PORT + 1}"
    agent = subprocess.Popen([kitty, "--keep-privileges", listen], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + APPEARS_S
        while True:
            expect(agent.poll() is None, f"the agent ended with status {agent.poll()}")
            try:
                with socket.create_connection((f"{address}%d0", PORT + 1), timeout=5):
                    return line
            except OSError as error:
                expect(time.monotonic() < deadline, f"the agent does not listen: {error}")
            time.sleep(0.1)
    finally:
        agent.terminate()
        agent.wait()


def silent(kitty):
    with Dns(silent=True):
        started = time.monotonic()
        was, line = reached(kitty, "n0.train.example")
        took = time.monotonic() - started
    expect(not was and "no server of /etc/resolv.conf answers" in line, line)
    expect(took < ANSWERS_S + 3, f"took {took:.1f} s")
    return f"{took:.1f} s"


def refused(kitty):
    was, line = reached(kitty, "n0.train.example")
    expect(not was and "no server of /etc/resolv.conf answers" in line, line)
    return line


def main():
    kitty = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0 or not shutil.which("unshare"):
        print("SKIP: root, or unshare (package util-linux), is missing")
        return 77
    isolate("--inside" in sys.argv, "--net", "--mount")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "resolv.conf")
        with open(path, "w") as file:
            file.write("nameserver 127.0.0.1\nsearch train.example\n")
        run("mount", "--bind", path, os.path.realpath("/etc/resolv.conf"))
        server = Server(("::", PORT), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            cases = found, unknown, failing, silent, refused, scoped
            return run_cases([(case.__name__, lambda case=case: case(kitty)) for case in cases])
        finally:
            server.shutdown()
            run("umount", os.path.realpath("/etc/resolv.conf"))


if __name__ == "__main__":
    sys.exit(main())
