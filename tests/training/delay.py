#!/usr/bin/env python3
"""A longer path where the kernel has no netem: relays frames between two interfaces, each so many milliseconds later.

    delay.py INTERFACE INTERFACE MILLISECONDS

Run in the interfaces' network namespace. Keeps segments together as the kernel has them (struct virtio_net_hdr), so
that a few thousand frames a second are enough for a training job. Says when it is ready; runs until it is stopped.
Needs root; standard library only.
"""

import collections
import select
import socket
import sys
import time

# linux/if_packet.h, linux/if_ether.h; headers of linux/virtio_net.h precede the frames.
SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR, ETH_P_ALL = 263, 23, 15, 3
FRAME_BYTES = 10 + 14 + 65536
BUFFER_BYTES = 64 << 20  # 50 ms of 10 Gbit/s
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32  # asm-generic/socket.h


def open_interface(name):
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    raw.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    raw.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    raw.bind((name, ETH_P_ALL))
    raw.setblocking(False)
    return raw


def main():
    left, right = open_interface(sys.argv[1]), open_interface(sys.argv[2])
    delay_s = float(sys.argv[3]) / 1000
    other = {left: right, right: left}
    print("ready", flush=True)
    waiting = collections.deque()  # (due, out, frame), ascending: all wait equally long
    while True:
        timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for raw in select.select([left, right], [], [], timeout)[0]:
            try:
                for _ in range(64):
                    waiting.append((time.monotonic() + delay_s, other[raw], raw.recv(FRAME_BYTES)))
            except BlockingIOError:
                pass
        while waiting and waiting[0][0] <= time.monotonic():
            _, out, frame = waiting.popleft()
            try:
                out.send(frame)
            except OSError:
                pass  # a full queue drops, as a switch does


if __name__ == "__main__":
    main()
