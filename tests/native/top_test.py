#!/usr/bin/env python3
"""`kitty top` on a terminal, a pipe and among bad targets: what the screen shows, and that it is always given back.

    top_test.py KITTY [--cases NAME,...] [--show]

The targets replay recordings of tests/training/recorded, a rank each; the terminal is a pty whose output a small
emulator follows. Needs root: everything runs in a network namespace of its own. Exit status 0 when every case holds,
77 where something is missing; each case prints its figures. --show prints the screen that names the culprit.
"""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from targets_test import (  # noqa: E402
    BAD_PORT,
    FAULT_S,
    FOREIGN,
    Good,
    Recording,
    Server,
    answer,
    dripping,
    main,
    replaying,
    saying,
    text_beyond,
)
from lab import Failure, expect  # noqa: E402

LIMIT_S = 30  # until something must have shown; for a machine that is busy with other tests
PROMPT = "user@host:~$ kitty top"
CULPRIT = "THROTTLE at rank 2 (node 127.0.0.1:9412)"
SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
SHOW = "--show" in sys.argv


class Screen:
    """As much of a terminal as kitty top uses; anything else is a Failure."""

    def __init__(self, columns, rows):
        self.pending = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.alternate = False
        self.cursor_shown = True
        self.frames = 0
        self.colours = 0
        self.saved = None
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        old = getattr(self, "cells", [])
        blank = [[" "] * columns for _ in range(rows)]
        for row, line in zip(blank, old):
            row[: len(line)] = line[:columns]
        self.cells = blank
        self.row = self.column = 0

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def text(self):
        return "\n".join(self.lines())

    def feed(self, data):
        self.pending += self.decoder.decode(data)
        while self.pending:
            if self.pending[0] == "\x1b":
                match = SEQUENCE.match(self.pending)
                if not match:
                    if len(self.pending) > 16:
                        raise Failure(f"an escape that the screen does not know: {self.pending[:16]!r}")
                    return
                self.pending = self.pending[match.end() :]
                self._sequence(match[1], match[2])
                continue
            character, self.pending = self.pending[0], self.pending[1:]
            self._character(character)

    def _character(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            if self.row + 1 >= self.rows:
                if self.alternate:
                    raise Failure(f"the frame scrolls:\n{self.text()}")
                self.cells = [*self.cells[1:], [" "] * self.columns]
            else:
                self.row += 1
        elif character in "\x07\x08":
            self.column = max(0, self.column - 1) if character == "\x08" else self.column
        elif ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0:
            raise Failure(f"a control character on the screen: {character!r}")
        elif self.column >= self.columns:
            if self.alternate:
                raise Failure(f"a line wider than {self.columns}:\n{self.text()}")
        else:
            self.cells[self.row][self.column] = character
            self.column += 1

    def _sequence(self, parameters, final):
        if final == "H" and not parameters:
            self.row = self.column = 0
            self.frames += 1
        elif final == "K" and not parameters:
            self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
        elif final == "J" and not parameters:
            self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
            for row in range(self.row + 1, self.rows):
                self.cells[row] = [" "] * self.columns
        elif final == "m":
            self.colours += parameters not in ("", "0")
        elif (parameters, final) == ("?1049", "h"):
            self.alternate = True
            self.saved = (self.cells, self.row, self.column)
            self.cells = [[" "] * self.columns for _ in range(self.rows)]
        elif (parameters, final) == ("?1049", "l"):
            if self.alternate:
                self.cells, self.row, self.column = self.saved
            self.alternate = False
        elif (parameters, final) in (("?25", "l"), ("?25", "h")):
            self.cursor_shown = final == "h"
        elif parameters.startswith("?2004"):
            pass  # bash's bracketed paste
        else:
            raise Failure(f"a sequence that the screen does not know: ESC[{parameters}{final}")


class Top:
    """A command on a terminal of its own, as its session's leader. `with Top(...)` ends it."""

    def __init__(self, command, columns=80, rows=24, **environment):
        self.command = command
        self.screen = Screen(columns, rows)
        self.environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment}

    def __enter__(self):
        self.master, slave = pty.openpty()
        self.resize(self.screen.columns, self.screen.rows)
        self.screen.feed(PROMPT.encode() + b"\r\n")
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            self.command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self.environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(columns, rows)

    def type(self, keys):
        os.write(self.master, keys)

    def read(self, wait_s=0.1):
        while select.select([self.master], [], [], wait_s)[0]:
            self.screen.feed(os.read(self.master, 1 << 16))
            wait_s = 0

    def wait(self, what, condition):
        deadline = time.monotonic() + LIMIT_S
        while not condition(self.screen):
            if time.monotonic() > deadline:
                raise Failure(f"expected {what}, seen:\n{self.screen.text()}")
            self.read()
        return self.screen

    def wait_for(self, *texts):
        return self.wait(" and ".join(texts), lambda screen: all(text in screen.text() for text in texts))

    def expect_given_back(self, status):
        """It has ended so, and the terminal is as it was."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            expect(time.monotonic() < deadline, "expected an end, seen none")
            self.read()
        self.read(0.3)
        expect(self.process.returncode == status, f"expected status {status}, seen {self.process.returncode}")
        self.expect_main_screen()

    def expect_main_screen(self):
        screen = self.screen
        expect(not screen.alternate, "expected the main screen, seen the alternate one")
        expect(screen.cursor_shown, "expected a cursor, seen none")
        expect(PROMPT in screen.lines()[0], f"expected what stood there before, seen:\n{screen.text()}")
        after = termios.tcgetattr(self.slave)
        expect(after == self.before, f"expected the terminal's settings {self.before}, seen {after}")


def rows_of(screen):
    """The table's ranks in their order, with marks."""
    lines = screen.lines()
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("RANK"))
    ranks = []
    for line in lines[at + 1 :]:
        match = re.match(r" *([0-9]+)([*v]?) ", line)
        if not match:
            break
        ranks.append(match[1] + match[2])
    return ranks


def names_the_culprit(kitty):
    with Good("egress_20") as good, Top([kitty, "top", *good.targets]) as top:
        started = time.monotonic()
        screen = top.wait_for(CULPRIT, "since ", "why: ", "2* ")
        took_s = time.monotonic() - started
        first = screen.lines()[0]
        expect(re.match(r"\d\d:\d\d:\d\dZ  4 of 4 targets answer, 1 job +q quits$", first), f"first line {first!r}")
        ranks = rows_of(screen)
        expect(ranks[0] == "2*" and sorted(rank.strip("*v") for rank in ranks) == list("0123"), f"rows {ranks}")
        victims = [rank for rank in ranks if rank.endswith("v")]
        expect(ranks[1 : 1 + len(victims)] == victims, f"expected victims behind the culprit, seen {ranks}")
        culprit = next(line for line in screen.lines() if "2* " in line)
        expect(re.search("[\u2585-\u2588]", culprit), f"expected a high plot in {culprit!r}")
        expect(screen.colours > 0, "expected the culprit coloured, seen no colour")
        if SHOW:
            top.wait("a plot of 20 s", lambda s: s.frames > 22)
            print(screen.text())
        top.type(b"q")
        top.expect_given_back(0)
        print(f"  named {took_s:.1f} s after its start; the fault began 3 s after it")


def ends_and_gives_back(kitty):
    ends = {
        "q": (lambda top: top.type(b"q"), 0),
        "Ctrl-C": (lambda top: top.type(b"\x03"), 0),
        "SIGTERM": (lambda top: top.process.send_signal(signal.SIGTERM), 0),
        "SIGHUP": (lambda top: top.process.send_signal(signal.SIGHUP), 0),
        "Ctrl-\\": (lambda top: top.type(b"\x1c"), -signal.SIGQUIT),
        "SIGSEGV": (lambda top: top.process.send_signal(signal.SIGSEGV), -signal.SIGSEGV),
        "Ctrl-S and SIGTERM": (stop_and_terminate, 0),
    }
    with Good("quiet") as good:
        for name, (end, status) in ends.items():
            with Top([kitty, "top", *good.targets]) as top:
                top.wait_for("4 of 4 targets answer")
                expect(top.screen.alternate and not top.screen.cursor_shown, "expected an own screen, no cursor")
                echo = termios.tcgetattr(top.slave)[3] & (termios.ECHO | termios.ICANON)
                expect(echo == 0, "expected keys unechoed and one by one")
                end(top)
                try:
                    top.expect_given_back(status)
                except Failure as failure:
                    raise Failure(f"{name}: {failure}") from None
    print(f"  given back after {', '.join(ends)}")


def stop_and_terminate(top):
    top.type(b"\x13")
    # Until its frames wait: nothing may come for longer than a frame takes.
    deadline = time.monotonic() + LIMIT_S
    frames = -1
    while top.screen.frames != frames:
        expect(time.monotonic() < deadline, "expected no output after Ctrl-S")
        frames = top.screen.frames
        top.read(2.5)
    top.process.send_signal(signal.SIGTERM)


def stops_and_goes_on(kitty):
    shell = f'"{kitty}" top 127.0.0.1:9410; echo has-stopped; read -r line; fg >/dev/null; echo has-ended $?'
    with Good("quiet"), Top(["bash", "--norc", "-mc", shell]) as top:
        top.wait_for("1 of 1 target answer")
        top.type(b"\x1a")
        top.wait_for("has-stopped")
        top.expect_main_screen()
        frames = top.screen.frames
        top.type(b"\n")
        top.wait("a new frame", lambda screen: screen.frames > frames and screen.alternate)
        top.wait_for("1 of 1 target answer")
        top.type(b"q")
        top.wait_for("has-ended 0")
        top.expect_main_screen()
    # Nobody could continue a session's leader: it must not stop, nor leave its screen.
    with Good("quiet") as good, Top([kitty, "top", *good.targets]) as top:
        top.wait_for("4 of 4 targets answer")
        top.type(b"\x1a")
        frames = top.screen.frames
        top.wait("frames after Ctrl-Z", lambda screen: screen.frames > frames + 2 and screen.alternate)
        top.type(b"q")
        top.expect_given_back(0)
    print("  Ctrl-Z gives the terminal back, fg takes it again")


def resizes(kitty):
    with Good("egress_20", FAULT_S["egress_20"]) as good, Top([kitty, "top", *good.targets], 120, 40) as top:
        top.wait_for(CULPRIT)
        for columns, rows in ((40, 10), (80, 24), (20, 5), (200, 60), (1, 1)):
            # The rest of frames for the old size may still come.
            top.read(0.3)
            top.resize(columns, rows)
            frames = top.screen.frames
            with contextlib.suppress(Failure):
                top.wait("a frame", lambda screen: screen.frames > frames)
            top.resize(columns, rows)
            frames = top.screen.frames
            top.wait("two whole frames", lambda screen: screen.frames > frames + 2)
            if columns >= 40:
                expect("rank 2" in top.screen.text(), f"{columns}x{rows}:\n{top.screen.text()}")
        top.type(b"q")
        deadline = time.monotonic() + LIMIT_S
        while top.process.poll() is None and time.monotonic() < deadline:
            top.read()
        expect(top.process.returncode == 0, f"expected an end with 0, seen {top.process.returncode}")
    print("  frames fit 40x10, 80x24, 20x5, 200x60, 1x1")


def without_colour(kitty):
    with Good("egress_20", FAULT_S["egress_20"]) as good:
        with Top([kitty, "top", *good.targets], NO_COLOR="1", LANG="C") as top:
            screen = top.wait_for(CULPRIT, "2* ")
            expect(screen.colours == 0, "expected no colour with NO_COLOR")
            expect(screen.text().isascii(), f"expected ASCII with LANG=C, seen:\n{screen.text()}")
            top.type(b"q")
            top.expect_given_back(0)
        with Top([kitty, "top", *good.targets], 200, 24, TERM="dumb") as top:
            screen = top.wait_for(CULPRIT)
            expect(not screen.alternate and screen.frames == 0 and screen.colours == 0, "expected lines on dumb")
            top.process.send_signal(signal.SIGTERM)
            expect(top.process.wait(LIMIT_S) == 0, "expected status 0")
    print("  NO_COLOR: none; LANG=C: ASCII; TERM=dumb: lines")


class Lines:
    """kitty top into a pipe."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def wait_for(self, pattern):
        deadline = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.text, re.M):
            if time.monotonic() > deadline:
                raise Failure(f"expected a line {pattern!r}, seen:\n{self.text}")
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                expect(data, f"expected more, seen its end:\n{self.text}")
                self.text += data.decode()


def lines_into_a_pipe(kitty):
    stamp = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
    with Good("egress_20") as good:
        with Lines(kitty, "top", *good.targets) as top:
            top.wait_for(stamp + r"4 of 4 targets answer, 1 job$")
            top.wait_for(stamp + r"job train 4 ranks HEALTHY: ")
            top.wait_for(stamp + r"job train 4 ranks " + re.escape(CULPRIT) + ": all 2 active links of rank 2 are slow")
            top.wait_for(r"answer, 1 job$[^!]*answer, 1 job$")  # the heartbeat
            bad = [line for line in top.text.splitlines() if not re.match(stamp, line)]
            expect(not bad and "\x1b" not in top.text, f"expected lines with a time, no escapes, seen {bad}")
            expect(top.text.count(CULPRIT) == 1, f"expected one line for each change, seen:\n{top.text}")
            top.process.stdout.close()  # the reader goes
            expect(top.process.wait(LIMIT_S) == 0, f"expected a quiet end, seen {top.process.returncode}")
            expect(top.process.stderr.read() == b"", "expected a quiet end, seen a complaint")
            top.process.stdout = open(os.devnull)
        # A reader that does not read must not hold up the end.
        with Lines(kitty, "top", good.targets[0]) as top:
            fcntl.fcntl(top.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
            top.wait_for("targets? answer")
            top.process.send_signal(signal.SIGTERM)
            expect(top.process.wait(LIMIT_S) == 0, "expected status 0 after SIGTERM")
        done = subprocess.run([kitty, "top", "--nope"], capture_output=True, timeout=LIMIT_S)
        expect(done.returncode == 3 and not done.stdout, f"expected wrong usage, seen {done}")
    print("  one line for each change, a heartbeat; a reader that goes ends it quietly")


def bad_targets(kitty):
    with contextlib.ExitStack() as stack:
        drip = stack.enter_context(Server(BAD_PORT, dripping))
        foreign = stack.enter_context(Server(BAD_PORT + 1, saying(answer(FOREIGN.encode()))))
        dead, tls = f"127.0.0.1:{BAD_PORT + 2}", "https://127.0.0.1:1/"
        good = stack.enter_context(Good("egress_20", FAULT_S["egress_20"]))
        targets = [drip.target, tls, *good.targets, dead, foreign.target]
        top = stack.enter_context(Top([kitty, "top", *targets], 100, 30))
        started = time.monotonic()
        top.wait_for(
            CULPRIT,
            "4 of 8 targets answer, 1 job",
            f"not judged: {drip.target}: ",
            f"not judged: {tls}: ",
            f"not judged: {dead}: connect '{dead}': Connection refused",
            f"not judged: {foreign.target}: read scrape: no kitty_build_info",
        )
        named_s = time.monotonic() - started
        top.wait("frames each second", lambda screen: screen.frames > 8)
        started = time.monotonic()
        top.type(b"q")
        top.expect_given_back(0)
        ended_s = time.monotonic() - started
        expect(ended_s < 4, f"expected an end before the dripping fetch's, seen {ended_s:.1f} s")
        print(f"  four bad targets of eight: named within {named_s:.1f} s, ended within {ended_s:.1f} s")


def targets_come_and_go(kitty):
    """A named rank whose agent is gone stays named, and a target that comes back is judged again."""
    recording = Recording("egress_20")
    with contextlib.ExitStack() as stack:
        good = stack.enter_context(Good("egress_20", FAULT_S["egress_20"]))
        top = stack.enter_context(Top([kitty, "top", *good.targets]))
        top.wait_for(CULPRIT)
        culprit = good.servers[2]
        culprit.__exit__()
        top.wait_for("3 of 4 targets answer", f"not judged: {culprit.target}: ")
        frames = top.screen.frames
        top.wait("six more frames", lambda screen: screen.frames > frames + 6)
        still = "rank 2 (node 127.0.0.1:9412)" in top.screen.text() and rows_of(top.screen)[0] == "2*"
        expect(still, f"expected the rank still named, seen:\n{top.screen.text()}")
        again = Server(culprit.port, replaying(recording, 2, 60))
        stack.enter_context(again)
        top.wait_for("4 of 4 targets answer")
        top.type(b"q")
        top.expect_given_back(0)
    print("  a named rank whose agent is gone stays named")


def much_to_judge(kitty):
    """q and Ctrl-C are obeyed, whatever targets have to say: one beyond the bounds, and many at them."""
    with contextlib.ExitStack() as stack:
        beyond = stack.enter_context(Server(BAD_PORT, saying(answer(text_beyond(42_000, 0)))))
        full = [
            stack.enter_context(Server(BAD_PORT + 1 + i, saying(answer(text_beyond(1024, 0, i))))) for i in range(8)
        ]
        for key in (b"q", b"\x03"):
            with Top([kitty, "top", beyond.target, *(server.target for server in full)], 120, 30) as top:
                top.wait_for("answer, 256 jobs and ", "more than 1024 processes: not a scrape of kitty")
                top.type(key)
                top.expect_given_back(0)
    print("  8 targets of 1,024 jobs each, one of 42,000")


CASES = {
    "names-the-culprit": names_the_culprit,
    "ends-and-gives-back": ends_and_gives_back,
    "stops-and-goes-on": stops_and_goes_on,
    "resizes": resizes,
    "without-colour": without_colour,
    "lines-into-a-pipe": lines_into_a_pipe,
    "bad-targets": bad_targets,
    "targets-come-and-go": targets_come_and_go,
    "much-to-judge": much_to_judge,
}

if __name__ == "__main__":
    sys.exit(main(CASES, __doc__, "--show"))
