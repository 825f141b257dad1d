#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of random text addresses, ours beside those of tools that are not ours.

judge.py --tool NAME-ADDRESSES [-n COUNT] [--seed N] [--judge llvm|eu|go|objdump|all]
         [--debug FILE|auto|none] [--twin FILE] [--table FILE] [--packed] [--show N] FILE...

Addresses are drawn evenly from the file's executable sections. Each answer that differs falls into
one class; docs/symbols.md explains them. With --twin the judge is asked about that file: the same
program before it was stripped. Exit status: 0 when no difference is unexplained and the classes
other than judge-* and alias hold at most 1 % of the addresses of each file, else 1.

--judge all asks eu-addr2line and llvm-symbolizer, and objdump about stubs of the PLT. A name is equal
when one of them gives it; of the rest every class counts to the 1 %, alias too: another name at the
very address whose name the judges give, by the symbol tables they read. --debug auto is the
file's separate debug file, as the judges find it by themselves; with none they are kept from it.
--packed: the symbol file made of the program must say the same.
"""

import argparse
import bisect
import collections
import pathlib
import random
import re
import subprocess
import sys

# judge-*: the judge has less or other data, so that the answers cannot be the same. alias: the same
# symbol by another of its names; of these the judges choose differently among themselves.
NOT_COUNTED = ("judge-", "alias")


def run(args, text=""):
    done = subprocess.run(args, input=text.encode(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    return done.stdout.decode("utf-8", "replace")


class Sections:
    """Executable sections that have contents."""

    def __init__(self, path):
        self.found = []
        for line in run(["readelf", "-SW", path]).splitlines():
            m = re.match(r"\s*\[\s*\d+\] (\S*)\s+(\S+)\s+([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+) "
                         r"[0-9a-f]+\s+(\S*)\s", line)
            if m and "X" in m.group(6) and m.group(2) != "NOBITS":
                self.found.append((int(m.group(3), 16), int(m.group(5), 16), m.group(1)))

    def draw(self, count, only=""):
        places = [s for s in self.found if only in s[2] and s[1]]
        total = sum(s[1] for s in places)
        out = []
        while total and len(out) < count:
            at = random.randrange(total)
            for start, size, _ in places:
                if at < size:
                    out.append(start + at)
                    break
                at -= size
        return out

    def of(self, address):
        for start, size, name in self.found:
            if start <= address < start + size:
                return name
        return ""


class Table:
    """All function symbols of a file, by readelf."""

    def __init__(self, paths):
        self.at = collections.defaultdict(list)
        for path in paths:
            for line in run(["readelf", "-sW", path]).splitlines():
                f = line.split(None, 7)
                if len(f) < 8 or f[3] not in ("FUNC", "NOTYPE", "IFUNC") or f[6] in ("UND", "ABS"):
                    continue
                size = int(f[2], 0)
                name = re.sub(r"@.*", "", f[7].split(" ")[0] if "@" in f[7] else f[7])
                self.at[int(f[1], 16)].append((name, size, f[4], f[3]))
        self.starts = sorted(self.at)

    def nearest(self, address):
        i = bisect.bisect_right(self.starts, address) - 1
        return self.starts[i] if i >= 0 else None

    def covering(self, address):
        """(start, name) of every sized symbol that covers address; looks a little way back."""
        i = bisect.bisect_right(self.starts, address) - 1
        out = []
        for start in self.starts[max(0, i - 400):i + 1]:
            out += [(start, n) for n, size, _, _ in self.at[start] if start + size > address]
        return out

    def names(self, start):
        return [n for n, _, _, _ in self.at.get(start, ())]


def ask_ours(tool, path, debug, addresses, lines=False, packed=False):
    args = [tool] + (["-d", debug] if debug else []) + ["-l"] * lines + ["-p"] * packed + [path]
    out = run(args, "".join(f"{a:#x}\n" for a in addresses))
    return [line.split("\t")[1:] for line in out.splitlines()]


def demangle(tool, names):
    return run([tool, "-m"], "".join(n + "\n" for n in names)).splitlines()


def debug_file(path):
    """Where Debian puts a debug file, or None."""
    m = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", run(["readelf", "-n", path]))
    found = pathlib.Path(f"/usr/lib/debug/.build-id/{m[1]}/{m[2]}.debug") if m else None
    return str(found) if found and found.exists() else None


def ask_llvm(path, addresses, alone=False):
    """The outermost function: the one that has the code, not what was inlined into it."""
    out = run(["llvm-symbolizer-19", "--obj=" + path, "--functions=linkage", "--no-demangle",
               "--inlines", "--output-style=LLVM"] +
              (["--debug-file-directory=/nonexistent"] if alone else []),
              "".join(f"{a:#x}\n" for a in addresses))
    names = [group.splitlines()[-2] for group in out.strip("\n").split("\n\n")]
    return ["" if n == "??" else n for n in names]


def ask_eu(path, addresses, alone=False):
    out = run(["eu-addr2line", "-S", "-e", path] +
              (["--debuginfo-path=/nonexistent"] if alone else []),
              "".join(f"{a:#x}\n" for a in addresses))
    names = []
    lines = iter(out.splitlines())
    for line in lines:
        if line.startswith("(") or re.match(r".*\+0x[0-9a-f]+$", line) or \
                not re.match(r"(\?\?|.*):\d+", line):
            names.append("" if line.startswith(("(", "??")) else re.sub(r"(\+0x[0-9a-f]+)$", "", line))
            next(lines)
        else:
            names.append("")
    return names


def ask_go(path, addresses):
    out = run(["go", "tool", "addr2line", path], "".join(f"{a:#x}\n" for a in addresses))
    lines = out.splitlines()
    names = ["" if n == "?" else n for n in lines[0::2]]
    return names, ["?:0" if line == ":-1" else line for line in lines[1::2]]


def ask_objdump(path, addresses, sections):
    """The stubs of PLT sections, which objdump names in its listing."""
    starts = {}
    parts = sorted({f"--section={name}" for _, _, name in sections.found if ".plt" in name})
    listing = run(["objdump", "-d", *parts, path]) if parts else ""
    for m in re.finditer(r"^([0-9a-f]+) <(.*)>:$", listing, re.M):
        if m.group(2).endswith("@plt"):
            starts[int(m.group(1), 16)] = re.sub(r"@[^@]*@plt$", "@plt", m.group(2))
    order = sorted(starts)
    names = []
    for a in addresses:
        i = bisect.bisect_right(order, a) - 1
        names.append(starts[order[i]] if i >= 0 and a - order[i] < 16 else "")
    return names


def plain(name):
    """The base of a clone's name: foo.cold, foo.part.0, foo.constprop.1, foo.isra.0, foo.llvm.1."""
    return re.sub(r"\.(cold|part|constprop|isra|lto_priv|llvm|abi0|localalias)\b.*", "", name)


def no_arguments(name):
    """Go's dictionary and shape arguments: f[go.shape.int] in .symtab, f[...] in its own table."""
    depth, out = 0, []
    for c in name:
        if c == "[":
            depth += 1
        if not depth:
            out.append(c)
        if c == "]":
            depth -= 1
    return "".join(out)


def classify(address, ours, start, theirs, raw, table, sections, judge):
    """None when equal. ours and theirs are demangled; raw is the judge's linkage name."""
    if ours == theirs:
        return None
    where = sections.of(address)
    if where.startswith((".plt", ".iplt")):
        if theirs.startswith("*ABS*") and ours.endswith("@plt"):
            return "judge-ifunc"
        return "judge-plt" if not theirs or judge in ("eu", "llvm") else "plt"
    here = table.names(start)
    near = table.nearest(address)
    if ours and theirs:
        if raw in here:
            return "alias"
        if plain(ours) == plain(theirs):
            return "clone"
        if no_arguments(ours) == no_arguments(theirs):
            return "judge-go-generic" if judge == "go" else "go-generic"
        cover = table.covering(address)
        if raw in [n for _, n in cover] and start in [s for s, _ in cover]:
            return "nested"
        if raw in [n for _, n in cover] and near == start:
            return "label-inside"
        if raw in table.names(near) and start in [s for s, _ in cover]:
            return "judge-label"
        if not here and judge == "llvm":
            return "judge-dwarf"
        if judge == "eu" and start in [s for s, _ in cover]:
            return "judge-unsized"
        return "unexplained"
    if theirs:
        if not table.covering(address):
            return "judge-past-end" if near is not None else "unexplained"
        return "unexplained"
    if not here:
        return "judge-no-table"
    if table.covering(address):
        return "judge-none"
    return "unsized"


def without_version(name):
    return re.sub(r"(?<=.)@@?[A-Z][A-Za-z0-9_.]*$", "", name)


def ask(args, judge, path, addresses, sections):
    """(demangled names, linkage names, lines or None) of one judge."""
    lines = None
    if judge == "llvm":
        raw = ask_llvm(path, addresses, args.debug == "none")
    elif judge == "eu":
        raw = ask_eu(path, addresses, args.debug == "none")
    elif judge == "go":
        raw, lines = ask_go(path, addresses)
    else:
        raw = ask_objdump(path, addresses, sections)
        names = demangle(args.tool, [n[:-4] for n in raw])
        return [n + "@plt" if r else "" for n, r in zip(names, raw)], raw, None
    raw = [without_version(n) for n in raw]
    return demangle(args.tool, raw), raw, lines


def judge_file(args, path, judge):
    random.seed(args.seed)
    sections = Sections(path)
    asked = args.twin or path
    debug = debug_file(path) if args.debug == "auto" else None if args.debug == "none" else args.debug
    table = Table([asked] + [f for f in (debug, args.table) if f])
    addresses = sections.draw(args.count, ".plt" if judge == "objdump" else "")
    if not addresses:
        print(f"{path}: no text")
        return True
    ours = ask_ours(args.tool, path, debug, addresses, judge == "go")
    if args.packed:
        packed = ask_ours(args.tool, path, debug, addresses, judge == "go", True)
        differ = [(hex(a), x, y) for a, x, y in zip(addresses, ours, packed) if x != y]
        if differ or len(packed) != len(ours):
            print(f"FAIL packed  {path}: {len(differ)} names differ in the symbol file: {differ[:3]}")
            return False
    judges = ("eu", "llvm", "objdump") if judge == "all" else (judge,)
    said = {j: ask(args, j, asked, addresses, sections) for j in judges}
    for j, (theirs, _, _) in said.items():
        if not len(ours) == len(theirs) == len(addresses):
            print(f"{path}: {len(addresses)} asked, {len(ours)} ours, {len(theirs)} {j}'s")
            return False
    if judge == "all":
        return report_all(args, path, addresses, ours, said, table, sections)
    return report(args, path, judge, addresses, ours, *said[judge], table, sections)


def report_all(args, path, addresses, ours, said, table, sections):
    """Per address against each judge that can know it."""
    classes = collections.Counter()
    equal, disagree = collections.Counter(), 0
    for i, address in enumerate(addresses):
        name = "" if ours[i][1] == "-" else ours[i][1]
        judges = ("objdump",) if sections.of(address).startswith((".plt", ".iplt")) else ("eu", "llvm")
        theirs = {j: said[j][0][i] for j in judges}
        disagree += len(set(theirs.values())) > 1
        for j in judges:
            equal[j] += theirs[j] == name
        if name in theirs.values():
            classes["equal"] += 1
            continue
        kinds = {classify(address, name, int(ours[i][0], 16), theirs[j], said[j][1][i], table, sections,
                          j) for j in judges}
        kind = "alias" if "alias" in kinds else min(kinds)
        classes[kind] += 1
        if classes[kind] <= args.show:
            print(f"  {kind} {address:#x} ours {ours[i]} theirs {theirs}")
    same = classes.pop("equal", 0)
    counted = sum(classes.values())
    fine = not classes["unexplained"] and counted * 100 <= len(addresses)
    told = ", ".join(f"{k} {n}" for k, n in sorted(classes.items()) if n) or "no difference"
    named = sum(1 for o in ours if o[1] != "-")
    each = ", ".join(f"{j} {n}" for j, n in sorted(equal.items()))
    print(f"{'ok  ' if fine else 'FAIL'} all     {path}: {len(addresses)} addresses, {named} named, "
          f"equal to a judge {same} ({each}; eu and llvm differ at {disagree}), counted {counted}: {told}",
          flush=True)
    return fine


def report(args, path, judge, addresses, ours, theirs, raw, their_lines, table, sections):
    classes = collections.Counter()
    for i, address in enumerate(addresses):
        name = "" if ours[i][1] == "-" else ours[i][1]
        kind = classify(address, name, int(ours[i][0], 16), theirs[i], raw[i], table, sections,
                        judge)
        if their_lines and theirs[i] and ours[i][2] != their_lines[i]:
            # C functions have no line program, and the judge then reads the table's first bytes.
            no_program = ours[i][2] == "?:0" and "." not in name
            line = "judge-line" if no_program else "line"
            classes[line] += 1
            if classes[line] <= args.show:
                print(f"  {line} {address:#x} ours {ours[i][2]} theirs {their_lines[i]}")
        if not kind:
            continue
        classes[kind] += 1
        if classes[kind] <= args.show:
            print(f"  {kind} {address:#x} ours {ours[i]} theirs {theirs[i]!r}")
    counted = sum(n for k, n in classes.items() if not k.startswith(NOT_COUNTED))
    named = sum(1 for o in ours if o[1] != "-")
    fine = not classes["unexplained"] and counted * 100 <= len(addresses)
    told = ", ".join(f"{k} {n}" for k, n in sorted(classes.items()) if n) or "no difference"
    print(f"{'ok  ' if fine else 'FAIL'} {judge:7} {path}: {len(addresses)} addresses, "
          f"{named} named, counted {counted}: {told}", flush=True)
    return fine


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tool", required=True)
    p.add_argument("-n", "--count", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--judge", default="llvm", choices=("llvm", "eu", "go", "objdump", "all"))
    p.add_argument("--debug")
    p.add_argument("--twin")
    p.add_argument("--table", help="one more file whose symbols explain differences")
    p.add_argument("--packed", action="store_true")
    p.add_argument("--show", type=int, default=0)
    p.add_argument("files", nargs="+")
    args = p.parse_args()
    sys.exit(0 if all([judge_file(args, f, args.judge) for f in args.files]) else 1)


if __name__ == "__main__":
    main()
