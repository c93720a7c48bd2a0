"""Records what account() takes: packets by tcpdump, and sockets by sock_diag(7), of ranks that have a network namespace
each.

    capture.py FILE NAMESPACE...     Capture's own: samples the namespaces' sockets until SIGTERM

Not thread-safe. Needs root and tcpdump.
"""

import argparse
import collections
import contextlib
import ctypes
import ipaddress
import json
import os
import pickle
import re
import shutil
import signal
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, ".."))
from account import WELL_KNOWN_PORTS, Flow, Packet, Sample, Samples, account  # noqa: E402
from lab import Failure, Missing, expect, run  # noqa: E402

SAMPLE_S = 0.015
LISTING_S = 1
SNAP_BYTES = 96  # Ethernet, IPv6, TCP with its options
BUFFER_KIB = 64 << 10
READY_S = 20


# Packets


def read_capture(file, own_addresses):
    """The TCP segments of a capture of an Ethernet interface, in order of time. `own_addresses`: of the rank's node."""
    data = file.read()
    if len(data) < 24:
        return []
    magic, link = struct.unpack_from("=I16xI", data, 0)
    expect(magic == 0xA1B2C3D4 and link == 1, f"expected a capture of Ethernet, seen magic {magic:x}, link {link}")
    packets, flows, at = [], {}, 24
    header, tcp = struct.Struct("=IIII").unpack_from, struct.Struct("!II").unpack_from
    while at + 16 <= len(data):
        seconds, micros, kept, length = header(data, at)
        ip, at = at + 30, at + 16 + kept
        if at > len(data):
            break  # the last one, cut off
        version = data[ip] >> 4
        if data[ip - 2 : ip] == b"\x08\x00" and version == 4:
            total = data[ip + 2] << 8 | data[ip + 3]
            if data[ip + 9] != socket.IPPROTO_TCP or (data[ip + 6] & 0x1F) or data[ip + 7]:
                continue
            segment, addresses = ip + (data[ip] & 15) * 4, data[ip + 12 : ip + 20]
        elif data[ip - 2 : ip] == b"\x86\xdd" and version == 6:
            total, following, segment = data[ip + 4] << 8 | data[ip + 5], data[ip + 6], ip + 40
            if total:
                total += 40
            if following == 0:  # hop by hop: a jumbogram's length
                following, segment = data[segment], segment + 8 + data[segment + 1] * 8
            if following != socket.IPPROTO_TCP:
                continue
            addresses = data[ip + 8 : ip + 40]
        else:
            continue
        if segment + 20 > at:
            continue
        end = ip + total if total else ip - 14 + length  # 0: longer than the field can say
        name = addresses + data[segment : segment + 4]
        if (known := flows.get(name)) is None:
            known = flows[name] = flow_of(addresses, data[segment : segment + 4], own_addresses)
        if data[segment + 13] & 0x06:  # SYN, RST: their sequence numbers are no data's
            continue
        seq, ack = tcp(data, segment + 4)
        packets.append(
            Packet(seconds + micros / 1e6, known[0], known[1], end - segment - (data[segment + 12] >> 4) * 4, seq, ack)
        )
    packets.sort(key=lambda packet: packet[0])
    return packets


def flow_of(addresses, ports, own_addresses):
    """(own, flow) of a packet's source and destination."""
    half = len(addresses) // 2
    source, to = str(ipaddress.ip_address(addresses[:half])), str(ipaddress.ip_address(addresses[half:]))
    source_port, to_port = struct.unpack("!HH", ports)
    if source in own_addresses:
        return True, Flow(source, source_port, to, to_port)
    return False, Flow(to, to_port, source, source_port)


# Sockets

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLM_F_DUMP = 4, 20, 1, 0x300
NLMSG_ERROR, NLMSG_DONE, INET_DIAG_INFO = 2, 3, 2
STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8  # established, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT: include/net/tcp_states.h
CLONE_NEWNET = 0x40000000
DIAG_BYTES = 72  # struct inet_diag_msg


def diag_in(namespace):
    """A netlink socket of another network namespace; this thread is back in its own afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(path):
        with open(path) as file:
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                raise Failure(f"enter {path}: {os.strerror(ctypes.get_errno())}")

    with open("/proc/thread-self/ns/net") as home:
        enter(f"/run/netns/{namespace}")
        try:
            return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
        finally:
            enter(f"/proc/self/fd/{home.fileno()}")


def diag_request(flags, sequence, family, identity):
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, STATES) + identity
    return struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | flags, sequence, 0) + request


def plain_address(family, raw):
    if family == socket.AF_INET:
        return str(ipaddress.ip_address(raw[:4]))
    address = ipaddress.ip_address(raw)
    return str(address.ipv4_mapped or address)


class Sampler:
    """Asks one namespace's sockets one by one: a listing walks the whole table of connections."""

    def __init__(self, namespace):
        self.diag = diag_in(namespace)
        self.requests = b""
        self.flows = []
        self.samples = collections.defaultdict(list)  # {flow: [Sample]}

    def list(self):
        """Takes up the connections that there are now."""
        self.flows, requests = [], []
        for family in (socket.AF_INET, socket.AF_INET6):
            self.diag.send(diag_request(NLM_F_DUMP, 0, family, bytes(48)))
            done = False
            while not done:
                for kind, _, data in self._messages():
                    done = done or kind in (NLMSG_DONE, NLMSG_ERROR)
                    if kind != SOCK_DIAG_BY_FAMILY:
                        continue
                    identity = data[4:52]
                    port, peer_port = struct.unpack_from("!HH", identity)
                    flow = Flow(plain_address(data[0], identity[4:20]), port,
                                plain_address(data[0], identity[20:36]), peer_port)  # fmt: skip
                    if min(port, peer_port) >= WELL_KNOWN_PORTS:
                        requests.append(diag_request(0, len(self.flows), family, identity))
                        self.flows.append(flow)
        self.requests = b"".join(requests)

    def sample(self):
        if not self.flows:
            return
        self.diag.send(self.requests)
        answered = 0
        while answered < len(self.flows):
            for kind, sequence, data in self._messages():
                answered += 1
                if kind == SOCK_DIAG_BY_FAMILY:
                    self._take(self.flows[sequence], data)

    def _messages(self):
        data, at = self.diag.recv(1 << 18), 0
        while at + 16 <= len(data):
            length, kind, _, sequence = struct.unpack_from("=IHHI", data, at)
            yield kind, sequence, data[at + 16 : at + length]
            at += (length + 3) & ~3

    def _take(self, flow, data):
        (unread,) = struct.unpack_from("=I", data, 56)
        at = DIAG_BYTES
        while at + 4 <= len(data):
            size, kind = struct.unpack_from("=HH", data, at)
            if kind == INET_DIAG_INFO and size >= 4 + 184:
                info = at + 4  # struct tcp_info of linux/tcp.h
                (in_flight,) = struct.unpack_from("=I", data, info + 24)
                (retransmits,) = struct.unpack_from("=I", data, info + 100)
                unsent, min_rtt = struct.unpack_from("=II", data, info + 144)
                busy, limited = struct.unpack_from("=QQ", data, info + 168)
                min_rtt_s = 0 if min_rtt == 0xFFFFFFFF else min_rtt / 1e6  # none yet
                self.samples[flow].append(
                    Sample(time.time(), unread, unsent, in_flight, retransmits, min_rtt_s, busy / 1e6, limited / 1e6)
                )
            at += max(4, (size + 3) & ~3)


def sample(path, namespaces):
    """Samples until SIGTERM; leaves [{flow: [Sample]}] in a file."""
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    ranks = [Sampler(namespace) for namespace in namespaces]
    samplers = list(ranks)
    for sampler in samplers:
        sampler.list()
    print("ready", flush=True)
    listed_s = time.monotonic()
    while not stopping:
        started = time.monotonic()
        if started > listed_s + LISTING_S:
            listed_s = started
            samplers.append(samplers.pop(0))  # a listing takes as long as a sample: one namespace at a time
            samplers[-1].list()
        for sampler in samplers:
            sampler.sample()
        time.sleep(max(0.001, started + SAMPLE_S - time.monotonic()))
    with open(path, "wb") as file:
        pickle.dump([{tuple(flow): list(map(tuple, of)) for flow, of in s.samples.items()} for s in ranks], file)


# A recording

LOOPBACK = ("127.0.0.1", "::1")


def require_tcpdump():
    if not shutil.which("tcpdump"):
        raise Missing("tcpdump")


def addresses_of(namespace):
    interfaces = json.loads(run("ip", "-n", namespace, "-j", "addr"))
    return [address["local"] for interface in interfaces for address in interface["addr_info"]]


class Capture:
    """Records ranks' packets and sockets into a folder: `with Capture(lab, namespaces, folder):`; a Failure where the
    kernel dropped packets of it. One namespace a rank."""

    def __init__(self, lab, namespaces, folder):
        self.lab = lab
        self.namespaces = namespaces
        self.folder = folder
        self.started = []

    def _start(self, namespace, name, says, *command):
        log = os.path.join(self.folder, f"{name}.log")
        process = self.lab.start(namespace, *command, output=log)
        self.started.append((process, log))
        deadline = time.monotonic() + READY_S
        while says not in open(log).read():
            expect(process.poll() is None and time.monotonic() < deadline, f"{command}: {open(log).read()}")
            time.sleep(0.02)

    def __enter__(self):
        require_tcpdump()
        for rank, namespace in enumerate(self.namespaces):
            flags = ["-Z", "root", "-i", "eth0", "-s", str(SNAP_BYTES), "-B", str(BUFFER_KIB)]
            path = os.path.join(self.folder, f"packets-{rank}")
            self._start(namespace, f"tcpdump-{rank}", "listening on", "tcpdump", *flags, "-w", path, "tcp")
        program = (sys.executable, "-IS", os.path.abspath(__file__), os.path.join(self.folder, "samples"))
        self._start(self.namespaces[0], "sampler", "ready", *program, *self.namespaces)
        with open(os.path.join(self.folder, "recording.json"), "w") as file:
            json.dump({"addresses": [addresses_of(namespace) for namespace in self.namespaces]}, file)
        return self

    def __exit__(self, kind, *_):
        for process, _ in self.started:
            process.terminate()
        for process, _ in self.started:
            with contextlib.suppress(Exception):
                process.wait(READY_S)
        self.lab.stop(*(process for process, _ in self.started))
        if kind is None:
            for rank, (_, log) in enumerate(self.started[:-1]):
                said = open(log).read()
                dropped = re.search(r"(\d+) packets? dropped by kernel", said)
                expect(dropped and dropped[1] == "0", f"rank {rank}: tcpdump dropped packets, or did not end: {said}")


class Recording:
    """What Capture left in a folder."""

    def __init__(self, folder):
        with open(os.path.join(folder, "recording.json")) as file:
            self.addresses = json.load(file)["addresses"]
        nodes = enumerate(self.addresses)
        self.ranks = {address: rank for rank, of in nodes for address in of if address not in LOOPBACK}
        with open(os.path.join(folder, "samples"), "rb") as file:
            self.samples = [
                {Flow(*flow): Samples(Sample(*one) for one in of) for flow, of in rank.items()}
                for rank in pickle.load(file)
            ]
        self.packets = []
        for rank, addresses in enumerate(self.addresses):
            with open(os.path.join(folder, f"packets-{rank}"), "rb") as file:
                self.packets.append(read_capture(file, set(addresses)))
        times = [packets[i].time_s for packets in self.packets if packets for i in (0, -1)]
        expect(times, "no packets were captured")
        self.begin_s, self.end_s = min(times), max(times)

    def account(self, rank, begin_s, end_s, **how):
        """account() with ranks for peers; a peer that is no rank keeps its address."""
        found = account(self.packets[rank], self.samples[rank], begin_s, end_s, **how)
        in_flight = [self.ranks.get(peer, peer) for peer in found.open.in_flight]
        return found._replace(shares=self.by_rank(found.shares), open=found.open._replace(in_flight=in_flight))

    def by_rank(self, shares):
        named = collections.Counter()
        for (share, peer), value in shares.items():
            named[share, self.ranks.get(peer, peer)] += value
        return named


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("namespaces", nargs="+")
    given = parser.parse_args()
    sample(given.file, given.namespaces)


if __name__ == "__main__":
    main()
