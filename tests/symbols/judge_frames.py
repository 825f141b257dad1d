#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frames (functions, inlined calls, lines) of text addresses, ours beside those of a tool that is
not ours.

judge_frames.py --tool FRAMES-OF [-n COUNT] [--seed N] [--judge eu|llvm] [--show N] FILE...

eu-addr2line finds units by .debug_aranges alone, which clang does not write: take llvm there. What
differs is counted by kind: chain (functions), file, line. Exit status: 0 when at most 1 % of the
addresses differ in each file, else 1.
"""

import argparse
import os
import random
import re
import subprocess
import sys


def run(args, text):
    return subprocess.run(args, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", check=False).stdout


def text_sections(path):
    found = []
    for line in run(["readelf", "-SW", path], "").splitlines():
        m = re.match(r"\s*\[\s*\d+\] (\S*)\s+(\S+)\s+([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+) [0-9a-f]+\s+(\S*)\s", line)
        if m and "X" in m[6] and m[2] != "NOBITS":
            found.append((int(m[3], 16), int(m[5], 16)))
    return found


def draw(path, count):
    sections = text_sections(path)
    weights = [size for _, size in sections]
    picked = random.choices(sections, weights, k=count)
    return sorted({start + random.randrange(size) for start, size in picked})


def place(text):
    """(file, line) of "file:line", "file:line:column", with llvm's "(discriminator 2)"."""
    text = text.split(" (discriminator")[0]
    m = re.match(r"(.*?):(\d+)(?::\d+)?$", text)
    file, line = (m[1], int(m[2])) if m else (text, 0)
    return ("", 0) if file.startswith("??") else (os.path.normpath(file), line)


def ours(tool, path, addresses):
    found, frames = {}, None
    for line in run([tool, path], "\n".join(map(hex, addresses))).splitlines():
        if line.startswith("  "):
            name, where = line[2:].split("\t")
            frames.append((name, *place(where)))
        else:
            frames = found.setdefault(int(line.split()[0], 16), [])
    return found


def theirs(judge, path, addresses):
    args = {"eu": ["eu-addr2line", "-afiC", "-e", path], "llvm": ["llvm-addr2line-19", "-afiC", "-e", path]}[judge]
    found, at, name = {}, None, None
    for line in run(args, "\n".join(map(hex, addresses)) + "\n").splitlines():
        if re.fullmatch(r"0x[0-9a-f]+", line):
            at, name = int(line, 16), None
            found[at] = []
        elif name is None:
            name = re.sub(r" inlined at .*", "", line)
        else:
            found[at].append((name, *place(line)))
            name = None
    return found


def kind_of(mine, other):
    """None when equal."""
    if not mine:
        return None if all(not frame[2] for frame in other) else "chain"
    if len(mine) != len(other):
        return "chain"
    # A function may have the name of its symbol there; ours has that from elsewhere.
    if any(a[0] != b[0] for a, b in zip(mine[:-1], other[:-1])):
        return "chain"
    # Line 0 is "no line": some print no file then.
    pairs = [(a, b) for a, b in zip(mine, other) if a[2] and b[2]]
    if any(a[1] != b[1] for a, b in pairs):
        return "file"
    return "line" if any(a[2] != b[2] for a, b in zip(mine, other)) else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True)
    parser.add_argument("-n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", choices=("eu", "llvm"), default="eu")
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    bad = False
    for path in options.files:
        random.seed(options.seed)
        addresses = draw(path, options.n)
        mine, other = ours(options.tool, path, addresses), theirs(options.judge, path, addresses)
        kinds, shown = {}, 0
        for address in addresses:
            kind = kind_of(mine.get(address, []), other.get(address, []))
            if not kind:
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
            if shown < options.show:
                shown += 1
                print(f"{address:#x} {kind}\n  ours   {mine.get(address)}\n  theirs {other.get(address)}")
        with_lines = sum(bool(mine.get(a)) for a in addresses)
        inlined = sum(len(mine.get(a, [])) > 1 for a in addresses)
        print(f"{path}: {len(addresses)} addresses, {with_lines} with lines, {inlined} inlined, differ: "
              f"{sum(kinds.values())} {kinds or ''}")
        bad = bad or sum(kinds.values()) > len(addresses) / 100
    return 1 if bad else 0


sys.exit(main())
