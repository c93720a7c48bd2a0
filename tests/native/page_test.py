#!/usr/bin/env python3
"""The page at /, in a headless Chromium: real loopback traffic, the agent's own figures, and no other network.

    page_test.py KITTY [--screenshots FOLDER]

Needs root and Chromium (Debian package chromium). Everything runs in a network namespace that has only lo. Exit status
0 when every case holds, 77 where something is missing; each case prints its figures.
"""

import argparse
import base64
import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from lab import Failure, Lab, expect, run_cases  # noqa: E402

PORT = 9350
URL = f"http://127.0.0.1:{PORT}/"
TELEMETRY_PATH = "/a/figures"
LIMIT_S = 30  # for a machine that is busy with other tests
JOB = f"page-test-{os.getpid()}"
HOSTILE = f"{JOB}<script>document.title='taken'</script>\"'\\n\n\\<b>\u2028\u202e&lt;"
SHOWN = re.sub("[\n\u2028\u202e]", "\ufffd", HOSTILE)
FIGURE = re.compile(r"(?:0|[1-9][0-9.,]*)(?:k|M)?(?: (?:\u00b5s|ms|s|B|KB|MB))?")


def pipe():
    """Both ends of a pipe, at descriptors that redirecting 3 and 4 does not meet."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high


class Browser:
    """A headless Chromium and one page in it, driven over its debugging pipe. `with Browser(namespace)` ends it."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.stack = contextlib.ExitStack()
        self.complaints = []  # errors and warnings of the console, of the network, of the policy
        self.serial = 0
        self.session = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _start(self):
        profile = self.stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        commands, self.commands = pipe()
        self.answers, answers = pipe()
        self.stack.callback(os.close, self.commands)
        self.stack.callback(os.close, self.answers)
        self.received = b""
        flags = [
            "--headless",
            "--no-sandbox",  # it is root's, and sees this page only
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace,
             # Chromium reads commands from 3 and answers on 4; a plain sh redirects from one-digit descriptors only.
             "bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", "chromium", *flags],
            env={"PATH": os.environ["PATH"], "HOME": profile},
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.stack.callback(self._end)
        os.close(commands)
        os.close(answers)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _end(self):
        self.session = None
        with contextlib.suppress(Failure, OSError):
            self.call("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _receive(self, deadline):
        while b"\0" not in self.received:
            if not select.select([self.answers], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Failure("Chromium does not answer")
            if not (data := os.read(self.answers, 1 << 16)):
                raise Failure("Chromium has ended")
            self.received += data
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        """A command of the Chrome DevTools Protocol and its result; complaints that arrive meanwhile are kept."""
        self.serial += 1
        message = {"id": self.serial, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data) :]
        deadline = time.monotonic() + LIMIT_S
        while (answer := self._receive(deadline)).get("id") != self.serial:
            self._keep(answer)
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']}")
        return answer["result"]

    def _keep(self, event):
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failure(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, what, expression):
        """Until the expression is true in the page, and returns its value."""
        deadline = time.monotonic() + LIMIT_S
        while not (value := self.evaluate(expression)):
            if time.monotonic() > deadline:
                seen = f"the console says {self.complaints}, the page:\n{self.text()}"
                raise Failure(f"expected within {LIMIT_S} s: {what}; {seen}")
            time.sleep(0.2)
        return value

    def text(self):
        return self.evaluate("document.body.innerText")

    def look(self, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 800)  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(image))


class Stage:
    """A namespace with the agent and what it watches: ranks 2 and 10 of a job, one of a hostile name, and an idler."""

    def __init__(self, lab, kitty):
        self.lab = lab
        self.kitty = kitty
        self.namespace = lab.namespace("page")
        lab.start_echo(self.namespace, "127.0.0.1", 7000)
        for rank in ("10", "2"):
            self.send(rank, JOB, WORLD_SIZE="16")
        self.send("0", HOSTILE)
        lab.start(self.namespace, "sleep", "600", KITTY_WATCH="1", JOB_NAME=JOB)
        self.agent = None
        self.start_agent()

    def send(self, rank, job, **environment):
        self.lab.start_send(
            self.namespace, "127.0.0.1", 7000, 0.01, KITTY_WATCH="1", RANK=rank, JOB_NAME=job, **environment
        )

    def start_agent(self):
        flags = [f"--web.listen-address=127.0.0.1:{PORT}", f"--web.telemetry-path={TELEMETRY_PATH}"]
        self.agent = self.lab.start(self.namespace, self.kitty, *flags, "--log.level=error")


# {job: [[rank, who, RTT, retransmits, segments, queue]]}; the machine may have other watched processes.
ROWS = """Object.fromEntries([...document.querySelectorAll("section")].map(section => [
  section.querySelector("bdi").textContent,
  [...section.querySelector("table.job").tBodies].map(body => [
    body.querySelector("button").textContent, body.querySelector("th small").textContent,
    ...[...body.rows[0].cells].slice(1).map(cell => cell.querySelector("b span").textContent)])]))"""
MOVING = f"""(rows => [[{json.dumps(JOB)}, 2], [{json.dumps(SHOWN)}, 1]].every(([job, ranks]) =>
  rows[job]?.length === ranks && rows[job].every(row => parseInt(row[4]) > 0)))({ROWS})"""


def figures(stage, browser, screenshots):
    """Ranks in numeric order, each figure with its unit, the hook by name; the idle process folded in."""
    browser.look(1280, 800, "light")
    browser.call("Page.navigate", url=URL)
    browser.wait("three rows with a rate of segments", f"document.readyState === 'complete' && {MOVING}")
    time.sleep(8)  # for something to see in the plots
    rows = browser.evaluate(ROWS)
    hook = browser.evaluate("document.getElementById('hook').textContent")
    expect("/" in hook or hook == "none", f"expected a hook's name, seen {hook!r}")
    job = rows[JOB]
    expect([row[0] for row in job] == ["rank 2", "rank 10"], f"expected ranks 2, 10, seen {job}")
    for row in job:
        expect(re.fullmatch(r"pid \d+ python3\S*", row[1]), f"expected pid and comm, seen {row}")
        units = [None if hook == "none" else "s", "", "", "B"]
        for value, unit in zip(row[2:], units, strict=True):
            expect(unit is None or (FIGURE.fullmatch(value) and value.endswith(unit)), f"not a figure: {value!r}: {row}")
    text = browser.text()
    expect(f"job {JOB} 2 ranks on this node of 16" in text, f"expected the job's line in:\n{text}")
    expect("1 more without connections" in text, f"expected the idle process folded in:\n{text}")
    lines = "[...document.querySelectorAll('path')].filter(path => path.getAttribute('d')?.includes('L'))"
    plots = browser.evaluate(f"{lines}.length")
    expect(plots >= (9 if hook == "none" else 12), f"expected a line in each plot, seen {plots}")
    expect(not browser.complaints, f"the console says: {browser.complaints}")
    return f"hook {hook}; {job}; {plots} plots"


def hostile_name(stage, browser, screenshots):
    """A job named like markup is text, to the last character, and runs nothing."""
    shown = browser.evaluate("[...document.querySelectorAll('h2 bdi')].map(node => node.textContent)")
    expect(SHOWN in shown, f"expected {SHOWN!r} among {shown}")
    expect(browser.evaluate("document.title") == "kitty", "the job's name was taken for a script")
    expect(browser.evaluate("document.querySelectorAll('h2 script, h2 b').length") == 0, "markup in a job's name")
    expect(not browser.complaints, f"the console says: {browser.complaints}")
    try:
        browser.evaluate("document.body.insertAdjacentHTML('beforeend', '<b>x</b>')")
    except Failure:
        browser.evaluate("0")
        browser.complaints = [complaint for complaint in browser.complaints if "TrustedHTML" not in complaint]
        return "shown as it is; the policy refuses text as markup"
    raise Failure("expected the policy to refuse text as markup")


def peers(stage, browser, screenshots):
    """A row opens by keyboard and shows its peers; it stays open, and keeps the focus, while figures change."""
    browser.evaluate(f"""[...document.querySelectorAll("section")].find(section =>
      section.querySelector("bdi").textContent === {json.dumps(JOB)}).querySelector("button").focus()""")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13, text="\r")
    rows = "[...document.querySelector('tr.more:not([hidden]) tbody')?.rows ?? []]"
    read = f"{rows}.map(row => [...row.cells].map(cell => cell.textContent))"
    seen = browser.wait("the peer 127.0.0.1 with its segments",
                        f"{read}.some(row => row[0] === '127.0.0.1' && parseInt(row[5]) > 0) && {read}")  # fmt: skip
    time.sleep(2.5)
    if screenshots:
        browser.screenshot(os.path.join(screenshots, "1280x800-light.png"))
    expect(browser.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true", "the row lost the focus")
    return str(seen)


def phone(stage, browser, screenshots):
    """Nothing to scroll sideways at 360 px; dark where the reader's system is."""
    seen = []
    for width, height in ((360, 640), (390, 844)):
        browser.look(width, height, "dark")
        time.sleep(1.5)
        whole = browser.evaluate("document.documentElement.scrollWidth")
        expect(whole <= width, f"expected at most {width} px, seen {whole}")
        seen.append(f"{whole} of {width} px")
        if screenshots:
            browser.screenshot(os.path.join(screenshots, f"{width}x{height}-dark.png"))
    colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in re.findall(r"\d+", colour)]
    expect(max(channels[:3]) < 80, f"expected a dark background, seen {colour}")
    expect(not browser.complaints, f"the console says: {browser.complaints}")
    return f"{', '.join(seen)}; background {colour}"


def stopped(stage, browser, screenshots):
    """The agent gone: the page says since when; back again: the page goes on by itself."""
    notice = "document.querySelector('[role=alert]:not([hidden])')?.textContent"
    expect(browser.evaluate(notice) is None, "a notice while the agent answers")
    stage.lab.stop(stage.agent)
    seen = browser.wait("a notice", notice)
    expect(re.fullmatch(r"No answer since \d\d:\d\d:\d\d", seen), f"seen {seen!r}")
    if screenshots:
        browser.screenshot(os.path.join(screenshots, "390x844-no-answer.png"))
    stage.start_agent()
    browser.wait("no notice, and rates of the new agent's counters", f"!{notice} && {MOVING}")
    others = [c for c in browser.complaints if "ERR_CONNECTION" not in c and "ERR_EMPTY" not in c and "503" not in c]
    expect(not others, f"the console says: {others}")
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kitty")
    parser.add_argument("--screenshots", metavar="FOLDER")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("SKIP: root is missing")
        return 77
    if not shutil.which("chromium"):
        print("SKIP: chromium is missing (Debian package chromium)")
        return 77
    if given.screenshots:
        os.makedirs(given.screenshots, exist_ok=True)
    cases = [figures, hostile_name, peers, phone, stopped]
    with Lab() as lab:
        stage = Stage(lab, os.path.abspath(given.kitty))
        with Browser(stage.namespace) as browser:
            return run_cases(
                (case.__name__, lambda case=case: case(stage, browser, given.screenshots)) for case in cases
            )


if __name__ == "__main__":
    sys.exit(main())
