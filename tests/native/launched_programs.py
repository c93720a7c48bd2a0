#!/usr/bin/env python3
"""What launcher_test.py has launched: a ring of ranks that send each other messages.

    launched_programs.py ring FOLDER COUNT [RANK]     one rank; its number from what the launcher has set, unless given
    launched_programs.py spawn FOLDER COUNT           torch.multiprocessing.spawn() of so many, which set RANK themselves

Each rank writes FOLDER/pid-RANK, and ends when FOLDER/stop is there, after LIMIT_S at the latest. The ranks know each
other by files, so that none needs torch, whose import takes longer than the rest of a case.
"""

import os
import socket
import sys
import threading
import time

ADDRESS = "10.78.0.1"
LIMIT_S = 180
MESSAGE = bytes(20_000)
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # innermost first, in the cases that there are


def put(folder, name, text):
    """Whole or not at all."""
    with open(os.path.join(folder, f".{name}"), "w") as file:
        file.write(str(text))
    os.rename(os.path.join(folder, f".{name}"), os.path.join(folder, name))


def get(folder, name, deadline):
    while time.monotonic() < deadline:
        try:
            with open(os.path.join(folder, name)) as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(0.05)
    sys.exit(f"no {name}")


def swallow(listener):
    peer, _ = listener.accept()
    while peer.recv(65536):
        pass


def ring(folder, count, rank):
    deadline = time.monotonic() + LIMIT_S
    listener = socket.create_server((ADDRESS, 0))
    threading.Thread(target=swallow, args=(listener,), daemon=True).start()
    put(folder, f"port-{rank}", listener.getsockname()[1])
    port = int(get(folder, f"port-{(rank + 1) % count}", deadline))
    with socket.create_connection((ADDRESS, port), timeout=10) as following:
        put(folder, f"pid-{rank}", os.getpid())
        while time.monotonic() < deadline and not os.path.exists(os.path.join(folder, "stop")):
            following.sendall(MESSAGE)
            time.sleep(0.02)


def spawned(rank, folder, count):
    os.environ["RANK"] = str(rank)  # invisible from outside
    ring(folder, count, rank)


def main():
    what, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if what == "spawn":
        import torch.multiprocessing

        torch.multiprocessing.spawn(spawned, (folder, count), count)
    elif what == "ring":
        given = sys.argv[4:] or [os.environ[name] for name in RANKS if name in os.environ]
        ring(folder, count, int(given[0]))


if __name__ == "__main__":
    main()
