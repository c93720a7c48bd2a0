"""Checks account() on packets written by hand, whose account is known, and the reader of captures on three frames."""

import collections
import os
import socket
import struct

from account import Flow, Packet, Sample, Samples, account, name_of
from capture import read_capture
from lab import expect

ME, PORT = "10.0.0.9", 7000


class Script:
    """Packets written by hand: times in milliseconds, peers are numbers. Sequence numbers start just below the wrap."""

    def __init__(self):
        self.packets = []
        self.samples = collections.defaultdict(list)
        self.seq = collections.defaultdict(lambda: 0xFFFFFFFF - 3000)  # {(flow, own): the next one}

    @staticmethod
    def flow(peer, port=PORT):
        return Flow(ME, port, str(peer), 40000)

    def _add(self, at, own, flow, length, seq, ack):
        self.packets.append(Packet(at / 1000, own, flow, length, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF))

    def data(self, at, peer, length=1000, again=0, **port):
        """Received; `again`: so many bytes back, as a retransmission has them."""
        flow = self.flow(peer, **port)
        self._add(at, False, flow, length, self.seq[flow, False] - again, 0xFFFFFFFF - 3000)
        if not again:
            self.seq[flow, False] += length
        return self

    def send(self, at, peer, length=1000, again=0, **port):
        flow = self.flow(peer, **port)
        self._add(at, True, flow, length, self.seq[flow, True] - again, 0)
        if not again:
            self.seq[flow, True] += length
        return self

    def ack(self, at, peer, missing=0, **port):
        """Received, for all that was sent but `missing` bytes."""
        flow = self.flow(peer, **port)
        self._add(at, False, flow, 0, self.seq[flow, False], self.seq[flow, True] - missing)
        return self

    def sample(self, at, peer, unread=0, unsent=0, in_flight=0, busy=0, limited=0, min_rtt=0):
        one = Sample(at / 1000, unread, unsent, in_flight, 0, min_rtt / 1000, busy / 1000, limited / 1000)
        self.samples[self.flow(peer)].append(one)
        return self

    def stream(self, begin, end, peer, step=10):
        for at in range(begin, end + 1, step):
            self.data(at, peer)
        return self

    def sending(self, begin, end, peer, step=10, **port):
        """Sends and the acknowledgement of the one before, so that something is always in flight."""
        for at in range(begin, end + 1, step):
            self.send(at, peer, **port).ack(at, peer, missing=1000, **port)
        return self

    def account(self, begin=0, end=1000, **how):
        packets = sorted(self.packets, key=lambda packet: packet.time_s)
        return account(packets, {f: Samples(of) for f, of in self.samples.items()}, begin / 1000, end / 1000, **how)


def check_account():
    def holds(what, script, wanted, **how):
        found = {name_of(*name): value for name, value in script.account(**how).shares.items() if abs(value) > 0.0005}
        close = found.keys() == wanted.keys() and all(abs(found[name] - wanted[name]) < 0.002 for name in wanted)
        expect(close, f"{what}: expected {wanted}, seen {found}")
        expect(abs(sum(found.values()) - 1) < 0.002, f"{what}: the shares add up to {sum(found.values())}")

    def script():
        return Script()

    holds("a stream", script().stream(0, 1000, 1), {"receiving(1)": 1})
    late = script().data(0, 1).send(500, 1).ack(501, 1).data(1000, 2)
    holds("computes, sends, then waits", late, {"owing": 0.5, "moving": 0.001, "waiting(2)": 0.499})
    asks = script().data(0, 1).send(300, 1).data(1000, 1)
    holds("an answer brings the acknowledgement", asks, {"owing": 0.3, "waiting(1)": 0.7})
    again = script().data(0, 1).data(500, 1, again=1000).data(700, 1, length=1, again=1).data(1000, 1)
    holds("retransmissions and keepalives are no events", again, {"waiting(1)": 1})
    update = script().data(0, 1).send(1, 1).ack(2, 1).ack(500, 1).data(1000, 1)
    holds("window updates are no events", update, {"waiting(1)": 0.998, "moving": 0.002})

    lost = script().data(0, 1).send(1, 1).send(201, 1, again=1000).ack(1000, 1)
    holds("a path that loses", lost, {"path(1)": 1})
    closed = script().data(0, 1).send(1, 1).sample(0, 1).sample(1000, 1, busy=1000, limited=600).ack(1000, 1)
    holds("a receiver that does not read", closed, {"receiver(1)": 0.6, "path(1)": 0.4})
    behind = script().data(0, 1).send(1, 1).ack(2, 1)
    for at in range(-10, 1011, 15):
        behind.sample(at, 1, unsent=5000, busy=10 + at, limited=10 + at)
    holds("queued behind a closed window", behind.send(999, 1).ack(1000, 1), {"receiver(1)": 1})
    both = script().data(0, 3).send(1, 1).send(1, 2).ack(1000, 1)
    holds("two paths at once", both, {"path(1)": 0.5, "path(2)": 0.5})
    pair = script().data(0, 3).send(1, 1).send(1, 1, port=PORT + 1).send(1, 2).ack(900, 2).data(1000, 3)
    holds("two sockets of a pair", pair, {"path(1)": 0.6 + 0.1, "path(2)": 0.3})

    delayed = script().data(0, 1).send(0, 1).ack(40, 1).stream(50, 1000, 1)
    holds("a delayed acknowledgement", delayed, {"moving": 0.04, "receiving(1)": 0.96})
    delayed = script().data(0, 1).send(1, 1).sample(20, 1, unsent=1, busy=20).ack(40, 1).stream(50, 1000, 1)
    holds("in flight with more behind it", delayed, {"receiver(1)": 0.04, "receiving(1)": 0.96})
    longer = script().data(0, 1).send(0, 1).ack(70, 1).stream(80, 1000, 1)
    holds("longer than a delayed acknowledgement", longer, {"path(1)": 0.07, "receiving(1)": 0.93})
    longer.sample(20, 1, min_rtt=40)
    holds("unless the path is long", longer, {"moving": 0.07, "receiving(1)": 0.93})

    unread = script().data(0, 1).data(1000, 1)
    for at in range(5, 1000, 10):
        unread.sample(at, 1, unread=9 if 100 < at < 400 else 0)
    holds("what it has not read", unread, {"owing": 0.3, "waiting(1)": 0.7})

    other = script().data(0, 2).data(1000, 1)
    for at in range(5, 1000, 10):
        other.sample(at, 2, unread=9)
    holds("unread bytes of another than who ends it", other, {"waiting(1)": 1})

    store = script().stream(0, 1000, 1)
    quiet = script().data(0, 1).data(1000, 1)
    for at in range(0, 1000, 10):
        quiet.data(at, 5, length=1000, port=443)
    for at in range(0, 1000, 250):
        quiet.data(at, 6, length=4, port=PORT + 1)
    holds("a well-known port and a chatty store", quiet, {"waiting(1)": 1})
    holds("a stream, split", store, {"receiving(1)": 1}, split_s=0.1)

    busy = script().sending(0, 1000, 1).sample(0, 1).sample(1000, 1, busy=700, limited=300)
    holds("sending", busy, {"path(1)": 0.4, "receiver(1)": 0.3, "moving": 0.3})
    holds("sending, split", busy, {"path(1)": 0.4, "receiver(1)": 0.3, "moving": 0.3}, split_s=0.25)
    held = script().sending(0, 500, 1).sample(0, 1).sample(1000, 1, busy=800, in_flight=1).ack(1000, 1)
    holds("what silences took is not split again", held, {"path(1)": 0.8, "moving": 0.2})

    still = script().stream(0, 400, 1)
    holds("an open silence", still, {"receiving(1)": 0.4, "open": 0.6})
    seen = script().data(0, 1).send(100, 1).account()
    known = (seen.open.in_flight, seen.open.received_ago_s, seen.open.sent_ago_s)
    expect(known == (["1"], 1, 0.9), f"an open silence: {seen.open}")
    before = script().data(-400, 1).send(100, 1).ack(101, 1).stream(110, 1000, 1)
    rest = {"moving": 0.001, "receiving(1)": 0.899}
    holds("cut at the begin", before, {"owing": 0.1, **rest})
    holds("counted where it ends", before, {"owing": 0.5, "open": -0.4, **rest}, posted=True)


def check_capture():
    """The same segment by IPv4 and IPv6, with padding, beside what is no TCP."""

    def frame(kind, ip, tcp, padding=b""):
        data = bytes(12) + kind + ip + tcp + padding
        return struct.pack("=IIII", 5, 250_000, len(data), len(data)) + data

    tcp = struct.pack("!HHIIBBHHH", 7000, 40000, 10, 20, 8 << 4, 0x18, 0, 0, 0) + bytes(12)
    v4 = struct.pack("!BBHHHBBH", 0x45, 0, 20 + 32 + 7, 0, 0, 64, 6, 0)
    v6 = struct.pack("!IHBB", 6 << 28, 32 + 7, 6, 64)
    one, other = socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2")
    one6, other6 = socket.inet_pton(socket.AF_INET6, "fd00::1"), socket.inet_pton(socket.AF_INET6, "fd00::2")
    capture = struct.pack("=IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1) + b"".join(
        (
            frame(b"\x08\x00", v4 + one + other, tcp, bytes(9)),
            frame(b"\x08\x00", v4 + other + one, tcp),
            frame(b"\x08\x06", bytes(28), b""),
            frame(b"\x86\xdd", v6 + one6 + other6, tcp),
        )
    )
    memory = os.fdopen(os.memfd_create("capture"), "w+b")
    for length in (len(capture), len(capture) - 10):
        memory.seek(0)
        memory.truncate()
        memory.write(capture[:length])
        memory.seek(0)
        found = read_capture(memory, {"10.0.0.1", "fd00::1"})
        wanted = [
            Packet(5.25, True, Flow("10.0.0.1", 7000, "10.0.0.2", 40000), 7, 10, 20),
            Packet(5.25, False, Flow("10.0.0.1", 40000, "10.0.0.2", 7000), 7, 10, 20),
            Packet(5.25, True, Flow("fd00::1", 7000, "fd00::2", 40000), 7, 10, 20),
        ]
        wanted = wanted if length == len(capture) else wanted[:2]
        expect(found == wanted, f"a capture: expected {wanted}, seen {found}")


def check():
    check_account()
    check_capture()
