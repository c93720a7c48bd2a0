#!/usr/bin/env python3
"""One rank of a job that is no library's: a pattern of messages over TCP, step after step.

    RANK=0 pattern.py FOLDER PATTERN --peers ADDRESS,... [--bytes N] [--compute S] [--sockets N]
                      [--store ADDRESS PORT] [--storage ADDRESS PORT]

Computes, here by sleeping, and exchanges messages of N bytes; --peers are all ranks' addresses, its own among them.
While FOLDER/slow-RANK exists it computes half a second longer each time. --sockets: so many between two ranks, each
with its part of a message. --store: a thread sends 50 bytes a second there and waits for the answer; --storage: a
thread sends 1 MB each 50 ms there. Writes FOLDER/steps-RANK as train.py does. Runs until it is stopped. Standard
library only.
"""

import argparse
import contextlib
import os
import socket
import struct
import threading
import time

PORT = 7100
SLOW_S = 0.5
READ_BYTES = 1 << 18
POLL_BYTES, POLL_S = 50, 1
STREAM_BYTES, STREAM_S = 1 << 20, 0.05
HELLO = struct.Struct("!ii")  # rank, which socket of the pair


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def connect(address, port):
    while True:
        connection = socket.socket(family_of(address), socket.SOCK_STREAM)
        try:
            connection.connect((address, port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError:
            connection.close()
            time.sleep(0.1)  # not listening yet


def receive(connection, length):
    while length:
        data = connection.recv(min(length, READ_BYTES))
        if not data:
            raise ConnectionError
        length -= len(data)


def together(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Rank:
    """One rank's connections: the higher rank of two has connected to the lower."""

    def __init__(self, rank, peers, partners, sockets, length, compute):
        self.rank = rank
        self.world = len(peers)
        self.length = length
        self.message = bytes(length)
        self.compute = compute
        self.connections = {peer: [None] * sockets for peer in partners}
        with socket.create_server((peers[rank], PORT), family=family_of(peers[rank])) as listener:
            for peer in sorted(partners):
                for which in range(sockets if peer < rank else 0):
                    self.connections[peer][which] = connection = connect(peers[peer], PORT)
                    connection.sendall(HELLO.pack(rank, which))
            for _ in range(sockets * sum(peer > rank for peer in partners)):
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer, which = HELLO.unpack(connection.recv(HELLO.size, socket.MSG_WAITALL))
                self.connections[peer][which] = connection

    def _with_each(self, peer, do):
        connections = self.connections[peer]
        if len(connections) == 1:
            do(connections[0], self.length)
        else:
            together(*(lambda c=c: do(c, self.length // len(connections)) for c in connections))

    def send(self, peer):
        self._with_each(peer, lambda connection, length: connection.sendall(self.message[:length]))

    def receive(self, peer):
        self._with_each(peer, receive)


# A pattern: who is connected with whom, and what a rank does in a step.


def neighbours(rank, world):
    return {(rank + 1) % world, (rank - 1) % world}


def in_line(rank, world):
    return {rank - 1, rank + 1} & set(range(world))


def with_first(rank, world):
    return set(range(1, world)) if rank == 0 else {0}


def all_others(rank, world):
    return set(range(world)) - {rank}


def by_doubling(rank, world):
    return {rank ^ 1 << i for i in range(world.bit_length() - 1)}


def one_way_ring(r):
    r.compute()
    together(lambda: r.send((r.rank + 1) % r.world), lambda: r.receive((r.rank - 1) % r.world))


def exchange(r):
    """With all whom it is connected with: the ring both ways, and all to all."""
    r.compute()
    together(*(lambda q=q, do=do: do(q) for q in r.connections for do in (r.send, r.receive)))


def one_way_pipeline(r):
    if r.rank > 0:
        r.receive(r.rank - 1)
    r.compute()
    if r.rank < r.world - 1:
        r.send(r.rank + 1)


def pipeline(r):
    """Forward, and back."""
    one_way_pipeline(r)
    if r.rank < r.world - 1:
        r.receive(r.rank + 1)
        r.compute()
    if r.rank > 0:
        r.send(r.rank - 1)


def star(r):
    """A parameter server: takes from all, and gives to all."""
    if r.rank:
        r.compute()
        r.send(0)
        r.receive(0)
    else:
        together(*(lambda q=q: r.receive(q) for q in r.connections))
        r.compute()
        together(*(lambda q=q: r.send(q) for q in r.connections))


def doubling(r):
    """An allreduce of small messages."""
    r.compute()
    for i in range(r.world.bit_length() - 1):
        r.send(r.rank ^ 1 << i)
        r.receive(r.rank ^ 1 << i)


PATTERNS = {
    "one_way_ring": (neighbours, one_way_ring),
    "ring": (neighbours, exchange),
    "one_way_pipeline": (in_line, one_way_pipeline),
    "pipeline": (in_line, pipeline),
    "star": (with_first, star),
    "all_to_all": (all_others, exchange),
    "messages": (by_doubling, doubling),
}


# What runs beside a job


def poll_store(address, port):
    connection = connect(address, port)
    while True:
        connection.sendall(bytes(POLL_BYTES))
        receive(connection, 1)
        time.sleep(POLL_S)


def stream(address, port):
    connection, chunk = connect(address, port), bytes(STREAM_BYTES)
    while True:
        connection.sendall(chunk)
        time.sleep(STREAM_S)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("pattern", choices=PATTERNS)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--bytes", type=int, default=8 << 20)
    parser.add_argument("--compute", type=float, default=0.05)
    parser.add_argument("--sockets", type=int, default=1)
    parser.add_argument("--store", nargs=2, metavar=("ADDRESS", "PORT"))
    parser.add_argument("--storage", nargs=2, metavar=("ADDRESS", "PORT"))
    given = parser.parse_args()
    number, peers = int(os.environ["RANK"]), given.peers.split(",")
    partners, step = PATTERNS[given.pattern]
    slow = os.path.join(given.folder, f"slow-{number}")

    def compute():
        time.sleep(given.compute + (SLOW_S if os.path.exists(slow) else 0))

    rank = Rank(number, peers, partners(number, len(peers)), given.sockets, given.bytes, compute)
    for beside, where in ((poll_store, given.store), (stream, given.storage)):
        if where:
            threading.Thread(target=beside, args=(where[0], int(where[1])), daemon=True).start()
    with open(os.path.join(given.folder, f"steps-{number}"), "w", buffering=1) as steps, contextlib.suppress(OSError):
        while True:
            began = time.time()
            step(rank)
            ended = time.time()
            steps.write(f"{ended:.3f} {ended - began:.4f}\n")


if __name__ == "__main__":
    main()
