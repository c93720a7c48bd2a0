#!/usr/bin/env python3
"""A second witness of where a rank's time goes: its account from packets, TCP_INFO and receive queues alone.

    witness.py --self-test
    witness.py FOLDER [--seconds S] [--split S]

Prints the account of each rank that capture.py recorded in FOLDER (account_test.py --keep), or of its last S seconds:
its shares, and which rule its seconds fell under. --split: the sending time is split
for each S seconds by themselves instead of over the whole window. Standard library only.
"""

import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import account_check  # noqa: E402
from account import show  # noqa: E402
from capture import Recording  # noqa: E402


def show_folder(folder, seconds, split_s):
    recording = Recording(folder)
    end_s = recording.end_s
    begin_s = max(recording.begin_s, end_s - seconds) if seconds else recording.begin_s
    accounts = [recording.account(rank, begin_s, end_s, split_s=split_s) for rank in range(len(recording.addresses))]
    print("\n".join(show(accounts)))
    for rank, of in enumerate(accounts):
        rules = ", ".join(f"{rule} {100 * share:.1f}" for rule, share in sorted(of.rules.items()))
        print(f"rank {rank} by rule: {rules}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--split", type=float)
    given = parser.parse_args()
    if not given.folder and not given.self_test:
        parser.error("a folder or --self-test is missing")
    if given.self_test:
        account_check.check()
        print("PASS self-test")
    if given.folder:
        show_folder(given.folder, given.seconds, given.split)


if __name__ == "__main__":
    main()
