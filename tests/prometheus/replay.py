#!/usr/bin/env python3
"""Puts recordings through the Prometheus rules at a scrape a second, and through `kitty diagnose`.

    replay.py KITTY FOLDER... [--thresholds FILE] [--verbose] [--name NAME]

A folder holds what tests/training/record.py writes: MILLISECONDS.prom, one scrape each, and events.json. promtool loads
them as the series of one instance and evaluates the rules for windows of 3 s; kitty gets the same four scrapes of each
window. Prints whom each of them named, from when to when, and the windows in which they did not agree; --verbose every
window. --name adds a series to what is shown of each window. Exit status 0 where the alerts say what events.json does
(the ranks and the cause within 5 s, nobody else ever, silence 10 s after) and, 5 s after the injection, kitty the same.
KITTY may be - for the rules alone.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "training"))
import replay as training  # noqa: E402

RULES = os.path.join(HERE, "..", "..", "deploy", "prometheus", "rules.py")
WINDOW_S = 3
ALERTS = "ALERTS{alertstate='firing',severity!='info'}"
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def make_rules(path, window="3s", interval="1s", thresholds=None, job_label="job"):
    command = [sys.executable, "-IB", RULES, "--window", window, "--interval", interval, "--job-label", job_label]
    command += ["--thresholds", thresholds] if thresholds else []
    with open(path, "w") as file:
        subprocess.run(command, stdout=file, check=True)


def quoted(text):
    """A YAML string: JSON's are."""
    return json.dumps(text)


def read_series(texts, wanted, target_labels):
    """{series: [value or None of each text]} as Prometheus would store them: the target's labels where the text has
    none of that name."""
    series = collections.defaultdict(lambda: [None] * len(texts))
    for at, text in enumerate(texts):
        for line in text.splitlines():
            matched = SAMPLE.match(line)
            if not matched or not wanted.search(matched[1]):
                continue
            labels = dict(target_labels)
            labels.update((name, value) for name, value in LABEL.findall(matched[2] or ""))
            text_of = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()) if value)
            series[f"{matched[1]}{{{text_of}}}"][at] = matched[3]
    return series


def values_text(values):
    """promtool's notation, with the marker that Prometheus writes when a series is gone from a scrape."""
    out = []
    for before, value in zip([None] + values, values):
        out.append(value if value is not None else "stale" if before is not None else "_")
    return " ".join(out)


def used_series(rules_path):
    with open(rules_path) as file:
        names = set(re.findall(r"\b(?:kitty|process|net)_[a-z_]+\b", file.read()))
    return re.compile("^(?:" + "|".join(sorted(names)) + ")$")


def run_promtool(test, folder):
    """(exit status, what it printed) of one test file."""
    path = os.path.join(folder, "test.yml")
    with open(path, "w") as file:
        json.dump(test, file)  # JSON is YAML
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def parse_got(text):
    """{(expression, seconds): [labels]} of the expressions that did not hold what nothing holds."""
    found = {}
    at = None
    for line in text.splitlines():
        head = re.match(r'\s*expr: "((?:[^"\\]|\\.)*)", time: (\S+?),', line)
        if head:
            at = json.loads(f'"{head[1]}"'), duration_s(head[2])
            continue
        got = re.match(r"\s*got: (.*)$", line)
        if got and at:
            bodies = re.findall(r'\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\} (\S+?)(?:,|$)', got[1])
            found[at] = [dict(LABEL.findall(body), value=float(value)) for body, value in bodies]
    return found


def duration_s(text):
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([0-9.]+)([hms])", text))


def load(folder):
    with open(os.path.join(folder, "events.json")) as file:
        events = json.load(file)
    names = sorted((name for name in os.listdir(folder) if name.endswith(".prom")), key=lambda name: int(name[:-5]))
    times, texts = [], []
    for name in names:
        with open(os.path.join(folder, name)) as file:
            texts.append(file.read())
        times.append(int(name[:-5]) / 1000)
    return events, times, texts


def evaluate(rules_path, times, texts, expressions, folder):
    """{(expression, index of the scrape): [labels]}, each second one scrape."""
    slots = []
    for time_s in times:
        slots.append(max(round(time_s - times[0]), slots[-1] + 1 if slots else 0))
    filled = [""] * (slots[-1] + 1)
    known = [None] * (slots[-1] + 1)
    for slot, text, index in zip(slots, texts, range(len(texts))):
        filled[slot], known[slot] = text, index
    # A scrape that came late fell into the next second: the series went on in between.
    for slot in range(1, len(filled)):
        if known[slot] is None:
            filled[slot] = filled[slot - 1]
    series = read_series(filled, used_series(rules_path), {"job": "kitty", "instance": "node:9100"})
    nothing = [{"labels": "nothing", "value": 0}]
    test = {
        "rule_files": [rules_path],
        "evaluation_interval": "1s",
        "tests": [
            {
                "interval": "1s",
                "input_series": [{"series": name, "values": values_text(values)} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": expression, "eval_time": f"{slot}s", "exp_samples": nothing}
                    for slot in range(len(filled))
                    for expression in expressions
                ],
            }
        ],
    }
    _, text = run_promtool(test, folder)
    got = parse_got(text)
    if not got and "got" not in text:
        raise RuntimeError(f"promtool: {text[:2000]}")
    return {
        (expression, known[slot]): got.get((expression, slot), [])
        for slot in range(len(filled))
        if known[slot] is not None
        for expression in expressions
    }


def said(labels):
    """What an alert says, as training.Said does."""
    kind = {"KittySlowLink": "link", "KittyJobWide": "job-wide"}.get(labels["alertname"], labels.get("cause", ""))
    return kind, training.ranks_of(re.findall(r"[0-9]+", labels.get("ranks", "")))


def judged(events, times, found, index):
    """One window of the rules' verdict."""
    alerts = [one for one in found[ALERTS, index] if one.get("job") == events["job"]]
    kinds = {said(one)[0] for one in alerts}
    ranks = frozenset().union(*(said(one)[1] for one in alerts))
    return training.Said(times[index], "+".join(sorted(kinds)) or "nobody", ranks)


def spans(verdicts, since_s):
    """"throttle [2] 2.9..13.9" of consecutive verdicts that name somebody."""
    out = []
    for one in verdicts:
        what = training.show(one)
        if out and out[-1][0] == what:
            out[-1][2] = one.time_s
        else:
            out.append([what, one.time_s, one.time_s])
    named = [one for one in out if one[0] not in ("nobody", "healthy")]
    return ", ".join(f"{what} {a - since_s:.1f}..{b - since_s:.1f}" for what, a, b in named)


def held(windows):
    """What a watcher of `kitty diagnose` shows at each window: whom two in a row named, with the latest cause."""
    standing, before, out = training.Said(0, "nobody", frozenset()), None, []
    for one in windows:
        if one.kind not in ("no data", "too few ranks"):
            if before is not None and before.ranks == one.ranks or one.ranks and one.ranks == standing.ranks:
                standing = one._replace(kind="nobody") if one.kind == "healthy" else one
            before = one
        out.append(standing._replace(time_s=one.time_s))
    return out


def problems(events, verdicts):
    """What is wrong with what the alerts said."""
    wanted = frozenset(events["ranks"])
    since, until = events["since"], events["until"]
    out = []
    for one in verdicts:
        if one.ranks and one.ranks != wanted:
            out.append(f"names {training.show(one)} at {one.time_s - (since or verdicts[0].time_s):.1f} s")
    if not wanted:
        return out
    kinds = lambda one: set(one.kind.split("+"))
    named = [one.time_s for one in verdicts if one.ranks == wanted and kinds(one) & set(events["causes"])]
    start = max(since, events["agent_since"])
    if not named or named[0] - start > training.NAME_WITHIN_S:
        out.append(f"named {f'{named[0] - start:.1f} s' if named else 'never'}, not within {training.NAME_WITHIN_S} s")
    late = [one for one in verdicts if one.ranks and one.time_s > until + training.CLEAR_WITHIN_S]
    if late:
        out.append(f"still says {training.show(late[-1])} {late[-1].time_s - until:.1f} s after the fault")
    return out


def disagreements(events, rule_says, kitty_says):
    """Once both had the time to name: the same ranks in every window, and for most of the time the same cause."""
    if not events["ranks"]:
        return [f"kitty names {training.show(one)}" for one in kitty_says if one.ranks][:1]
    start = max(events["since"], events["agent_since"]) + training.NAME_WITHIN_S
    pairs = [(a, b) for a, b in zip(rule_says, kitty_says) if start < a.time_s <= events["until"]]
    out = [f"the rules name {training.show(a)}, kitty {training.show(b)}" for a, b in pairs if a.ranks != b.ranks][:1]
    usual = [collections.Counter(one.kind for one in says).most_common(1) for says in zip(*pairs)]
    if usual and usual[0][0][0] != usual[1][0][0]:
        out.append(f"the rules mostly say {usual[0][0][0]}, kitty {usual[1][0][0]}")
    return out


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("kitty")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--thresholds")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--name", action="append", default=[])
    given = parser.parse_args()
    kitty = os.path.abspath(given.kitty) if given.kitty != "-" else None
    failed = 0
    with tempfile.TemporaryDirectory(prefix="kitty-rules-") as temporary:
        rules = os.path.join(temporary, "rules.yml")
        make_rules(rules, thresholds=given.thresholds)
        for folder in given.folders:
            events, times, texts = load(folder)
            since = events["since"] or times[0]
            found = evaluate(rules, times, texts, [ALERTS, *given.name], temporary)
            first = training.WINDOW_SCRAPES - 1
            rule_says = [judged(events, times, found, at) for at in range(first, len(times))]
            since = events["since"] or times[0]
            wrong = problems(events, rule_says)
            lines, windows = [], []
            if kitty:
                windows = list(training.windows(kitty, folder, events["job"]))
                kitty_says = held(windows)
                wrong += disagreements(events, rule_says, kitty_says)
                differ = [
                    f"{a.time_s - since:.1f} s {training.show(a)} / {training.show(b)}"
                    for a, b in zip(rule_says, kitty_says)
                    if a.ranks != b.ranks or a.ranks and b.kind not in a.kind.split("+")
                ]
                lines.append(f"    kitty: {spans(kitty_says, since) or 'nobody'}")
                lines.append(f"    differ in {len(differ)} of {len(rule_says)} windows: {'; '.join(differ)}")
            failed += bool(wrong)
            print(f"{'FAIL' if wrong else 'PASS'} {events['case']}: rules: {spans(rule_says, since) or 'nobody'}")
            print("\n".join([*lines, *(f"    {problem}" for problem in wrong)]), flush=True)
            if given.verbose:
                for at in range(first, len(times)):
                    what = f" window {training.show(windows[at - first])}" if windows else ""
                    print(f"    {times[at] - since:6.1f} {training.show(rule_says[at - first])}{what}")
                    for name in given.name:
                        for labels in found[name, at]:
                            print(f"           {labels}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
