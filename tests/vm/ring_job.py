#!/usr/bin/env python3
"""One rank of a light job: each step it sends a message to both neighbours of its ring and waits for theirs.

    ring_job.py PORT BYTES INTERVAL_S ADDRESS PREVIOUS NEXT

A step each INTERVAL_S, or as fast as the slowest link lets them. As in training there is one connection a neighbour,
both ways in use, with always somebody who reads, and what goes to both is sent in turns. Ends after LIMIT_S at the
latest. Standard library only.
"""

# Few modules: in an emulated VM each costs its reader a second.
import contextlib
import socket
import sys
import threading
import time

LIMIT_S = 900
CHUNK_BYTES = 16_384  # a packet, before it is segmented: what netem drops is one of these


def connect(address, port):
    while True:
        try:
            return socket.create_connection((address, port))
        except OSError:
            time.sleep(0.2)  # not listening yet


def count(connection, length, messages):
    """Reads for ever; releases the semaphore `messages` for each that is whole."""
    owed = length
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 18):
            owed -= len(data)
            while owed <= 0:
                owed += length
                messages.release()


def main():
    port, length, interval_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    own, previous, following = sys.argv[4:]
    deadline = time.monotonic() + LIMIT_S
    neighbours = []
    with socket.create_server((own, port)) as listener:
        neighbours.append(connect(following, port))
        while len(neighbours) < 2:
            connection, (address, _) = listener.accept()
            if address == previous:
                neighbours.append(connection)
    received = []
    for connection in neighbours:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received.append(threading.Semaphore(0))
        threading.Thread(target=count, args=(connection, length, received[-1]), daemon=True).start()
    chunks = [bytes(min(CHUNK_BYTES, length - begin)) for begin in range(0, length, CHUNK_BYTES)]
    while time.monotonic() < deadline:
        started = time.monotonic()
        for chunk in chunks:
            for connection in neighbours:
                connection.sendall(chunk)
        for messages in received:
            if not messages.acquire(timeout=LIMIT_S):
                return
        time.sleep(max(0, started + interval_s - time.monotonic()))


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:
        sys.exit("a neighbour has ended")
