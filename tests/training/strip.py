#!/usr/bin/env python3
"""Cuts a recording down to what the verdict reads, for a fixture: one node's series of ranks and of peers with data.

    strip.py FOLDER DESTINATION FROM TO     seconds after the fault's begin, as in -4 8

Writes MILLISECONDS.prom and events.json as record.py does. The job is called "train" and its processes 1, 2, ...
"""

import json
import os
import re
import sys

READ = re.compile(
    "kitty_(peer_|process_info|process_address_info|build_info|rtt_hook_info|watched_processes)"
    "|process_start_time_seconds"
)
PEER = re.compile(r'kitty_peer_[a-z_]+\{.*peer="([^"]*)"')


def main():
    source, destination, first, last = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    with open(os.path.join(source, "events.json")) as file:
        events = json.load(file)
    origin = events["since"] or events["begin"]
    names = sorted((name for name in os.listdir(source) if name.endswith(".prom")), key=lambda name: int(name[:-5]))
    names = [name for name in names if first <= int(name[:-5]) / 1000 - origin <= last]
    texts = {}
    for name in names:
        with open(os.path.join(source, name)) as file:
            texts[name] = [line for line in file.read().splitlines() if READ.match(line)]

    # A peer without a data segment in the last scrape never had one.
    silent = {
        re.sub(r"^[a-z_]+|\}.*", "", line)
        for line in texts[names[-1]]
        if line.startswith("kitty_peer_data_segments_sent_total{") and line.endswith(" 0")
    }
    pids = sorted({pid for line in texts[names[-1]] for pid in re.findall(r'pid="(\d+)"', line)}, key=int)
    os.makedirs(destination)
    for name, lines in texts.items():
        with open(os.path.join(destination, name), "w") as file:
            for line in lines:
                if PEER.match(line) and re.sub(r"^[a-z_]+|\}.*", "", line) in silent:
                    continue
                line = line.replace(f'job="{events["job"]}"', 'job="train"')
                line = re.sub(r'pid="(\d+)"', lambda match: f'pid="{pids.index(match[1]) + 1}"', line)
                file.write(line + "\n")
    times = [int(name[:-5]) / 1000 for name in names]
    events = {name: events[name] for name in ("case", "ranks", "causes", "agent_since", "since", "until", "hook")}
    events |= {"job": "train", "begin": times[0], "end": times[-1]}
    with open(os.path.join(destination, "events.json"), "w") as file:
        json.dump(events, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
