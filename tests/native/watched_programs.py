#!/usr/bin/env python3
"""The watched process of attribution_test.py: it does what it is told and says what it truly sent.

    watched_programs.py worker CONTROL [CONNECTION]
    watched_programs.py mptcp-echo ADDRESS PORT SECONDS

CONTROL is the path of an AF_UNIX SOCK_SEQPACKET listener. The worker connects there, says hello, and answers each JSON
message with one. A fork connects anew, and so does the program after an exec. It ends when the other side is gone, so
that nothing outlives the test. Its traffic is lab.py's ping-pong with `lab.py echo`; standard library only.
mptcp-echo is an echo for workers whose connections are MPTCP.
"""

import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import time

MESSAGE = bytes(20_000)  # lab.py's MESSAGE_BYTES, which echo answers with one byte
IPPROTO_MPTCP = 262
CLONE_NEWNET = 0x40000000  # linux/sched.h
ANSWER_LIMIT_S = 60  # far over any retransmission under loss; then the program fails, and the test with it

# Offsets in struct tcp_info of include/uapi/linux/tcp.h, which only ever grows at its end.
TCP_INFO_BYTES = 232
TCP_INFO_FIELDS = {
    "retransmits": ("=I", 100),  # tcpi_total_retrans
    "segments": ("=I", 136),  # tcpi_segs_out
    "data_segments": ("=I", 156),  # tcpi_data_segs_out
    "bytes": ("=Q", 200),  # tcpi_bytes_sent
}


class Worker:
    """Single-threaded, so that what it sent is known whenever it answers."""

    def __init__(self, control_path):
        self.control_path = control_path
        self.connection = None
        self.messages = 0  # sent by this very process, and answered
        self.interval_s = None  # None: not sending
        self.due = 0.0
        self._say_hello()

    def _say_hello(self):
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.connect(self.control_path)
        self._reply({"pid": os.getpid()})

    def _reply(self, values, fds=()):
        socket.send_fds(self.control, [json.dumps(values).encode()], fds)

    def run(self):
        while True:
            wait_s = None if self.interval_s is None else max(0, self.due - time.monotonic())
            if not select.select([self.control], [], [], wait_s)[0]:
                self._send_message()
                self.due = max(self.due + self.interval_s, time.monotonic())
                continue
            request, fds, _, _ = socket.recv_fds(self.control, 65536, 1)
            if not request:
                return
            arguments = json.loads(request)
            reply = getattr(self, arguments.pop("command"))(*fds, **arguments)
            if reply is not None:
                self._reply(reply)

    def _send_message(self):
        self.connection.sendall(MESSAGE)
        if not self.connection.recv(1):
            raise ConnectionError("echo closed the connection")
        self.messages += 1

    # The commands.

    def connect(self, address, port, source_port=None, mptcp=False):
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP if mptcp else 0)
        self.connection.settimeout(ANSWER_LIMIT_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source_port:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.connection.bind((address, source_port))
        self.connection.connect((address, port))
        return {} if mptcp else self.info()

    def connect_again(self):
        """The same socket with the same four numbers once more, after a disconnect (connect(2) to AF_UNSPEC)."""
        local, remote = self.connection.getsockname(), self.connection.getpeername()
        before = self.info()
        libc = ctypes.CDLL(None, use_errno=True)
        nobody = struct.pack("=H14x", socket.AF_UNSPEC)
        if libc.connect(self.connection.fileno(), nobody, len(nobody)) != 0:
            raise OSError(ctypes.get_errno(), "connect to AF_UNSPEC")
        time.sleep(0.1)  # the other end is reset
        if self.connection.getsockname() != local:  # what was bound by name stays bound
            self.connection.bind(local)
        self.connection.connect(remote)
        return before

    def fill_and_leave(self):
        """Queues all that a connection to itself takes, and moves to another network namespace; what is queued stays."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.connection = socket.create_connection(listener.getsockname())
        self.accepted, _ = listener.accept()
        self.connection.setblocking(False)
        sent = 0
        try:
            while True:
                sent += self.connection.send(bytes(65536))
        except BlockingIOError:
            pass
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        return {"sent": sent}

    def stop_sending(self):
        self.interval_s = None
        return {"messages": self.messages}

    def send(self, interval_s):
        self.interval_s = interval_s
        self.due = time.monotonic()
        return {}

    def pause(self):
        self.interval_s = None
        return self.info()

    def count(self, messages, interval_s):
        """Sends exactly so many."""
        for _ in range(messages):
            due = time.monotonic() + interval_s
            self._send_message()
            time.sleep(max(0, due - time.monotonic()))
        return self.info()

    def info(self):
        """The connection's own counters, whoever sent, and the messages of this process alone."""
        raw = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        if len(raw) < TCP_INFO_BYTES:
            raise OSError(f"this kernel's struct tcp_info has {len(raw)} bytes only")
        fields = {name: struct.unpack_from(kind, raw, at)[0] for name, (kind, at) in TCP_INFO_FIELDS.items()}
        return {"messages": self.messages, **fields}

    def close(self, reset=False):
        """`reset`: by RST, so that no TIME_WAIT keeps the port."""
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        self.connection.close()
        self.connection = None
        return {}

    def give(self):
        """Passes the connection on and keeps it."""
        self._reply({}, [self.connection.fileno()])

    def take(self, fd):
        self.connection = socket.socket(fileno=fd)
        self.connection.settimeout(ANSWER_LIMIT_S)
        return {}

    def fork(self):
        child = os.fork()
        if child:
            return {"child": child}
        self.control.close()
        self.messages = 0
        self.interval_s = None
        self._say_hello()

    def exec(self, environment):
        os.execve(sys.executable, [sys.executable, "-IS", os.path.abspath(__file__), *sys.argv[1:]], environment)

    def exec_keeping(self, environment):
        """As exec, with the connection."""
        os.set_inheritable(self.connection.fileno(), True)
        arguments = [sys.executable, "-IS", os.path.abspath(__file__), *sys.argv[1:3], str(self.connection.fileno())]
        os.execve(sys.executable, arguments, environment)

    def wipe(self, keep=None):
        """Zeroes the environment where the kernel put it, as setproctitle does; all, or all before the entry `keep`."""
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rsplit(b")", 1)[1].split()
        env_start, env_end = (int(fields[field - 3]) for field in (50, 51))  # proc(5); what follows comm is field 3
        size = env_end - env_start
        if keep is not None:
            size = self._environ().index(keep.encode())
        ctypes.memset(env_start, 0, size)
        return {"left": [entry.decode() for entry in self._environ().split(b"\0") if entry]}

    def _environ(self):
        with open("/proc/self/environ", "rb") as environ:
            return environ.read()

    def exit(self):
        os._exit(0)


def mptcp_echo(address, port, seconds):
    """Answers on one connection; never outlives the test by much."""
    signal.alarm(int(seconds))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, int(port)))
    listener.listen()
    connection, _ = listener.accept()
    owed = len(MESSAGE)
    while data := connection.recv(min(owed, 65536)):
        owed -= len(data)
        if owed == 0:
            connection.sendall(b"k")
            owed = len(MESSAGE)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "mptcp-echo":
        mptcp_echo(*sys.argv[2:])
        return
    if len(sys.argv) not in (3, 4) or sys.argv[1] != "worker":
        sys.exit("usage: watched_programs.py worker CONTROL [CONNECTION]")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave no zombie
    worker = Worker(sys.argv[2])
    if len(sys.argv) == 4:
        worker.take(int(sys.argv[3]))
    worker.run()


if __name__ == "__main__":
    main()
