#!/usr/bin/env python3
"""One rank of a job that is no training: rank 0 asks every other rank, which thinks for 30 ms before it answers.

    RANK=0 requests_job.py FOLDER PORT [ADDRESS...]     rank 0; the addresses are those of the others
    RANK=1 requests_job.py FOLDER PORT

No network is slow here, yet a small message's acknowledgement comes with the answer, so that its round-trip time is the
other side's thinking. Writes FOLDER/steps-RANK as train.py does. Runs until it is stopped. Standard library only.
"""

import os
import socket
import sys
import threading
import time

THINK_S = 0.03
REQUEST, ANSWER = bytes(500), bytes(200)  # a segment each


def receive(connection, length):
    while length:
        data = connection.recv(length)
        if not data:
            raise ConnectionError
        length -= len(data)


def answer(connection, steps):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        began = time.time()
        receive(connection, len(REQUEST))
        time.sleep(THINK_S)
        connection.sendall(ANSWER)
        steps.write(f"{time.time():.3f} {time.time() - began:.4f}\n")


def ask(address, port, steps):
    while True:
        try:
            with socket.create_connection((address, port)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while True:
                    began = time.time()
                    connection.sendall(REQUEST)
                    receive(connection, len(ANSWER))
                    steps.write(f"{time.time():.3f} {time.time() - began:.4f}\n")
        except OSError:
            time.sleep(0.2)  # not listening yet


def main():
    folder, port, addresses = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    with open(os.path.join(folder, f"steps-{os.environ['RANK']}"), "w", buffering=1) as steps:
        if addresses:
            threads = [threading.Thread(target=ask, args=(address, port, steps)) for address in addresses]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with socket.create_server(("", port)) as listener:
            while True:
                answer(listener.accept()[0], steps)


if __name__ == "__main__":
    main()
