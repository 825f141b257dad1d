# SPDX-License-Identifier: Apache-2.0
"""Names of the kernel and of modules: what a guest's /proc/kallsyms says, looked up by us and by bisection here.

6.1 with three modules of its package. 10,000 addresses; every one must have the name, or none where the rules
of docs/symbols.md say so.
"""

import bisect
import collections
import os
import random
import subprocess

import pytest
from test_kernels import BUILD, HERE, Guest

COUNT = 10000
GAP, LAST_GAP = 65536, 4096
MARKS = {"_text", "_stext", "_etext", "_sinittext", "_einittext", "__init_begin", "_end"}


@pytest.fixture(scope="module")
def guest(tmp_path_factory):
    kept = os.environ.get("FLYBALL_KERNELS_OUT")
    out = tmp_path_factory.mktemp("kallsyms")
    subprocess.run([HERE / "fetch-kernel", "6.1", out / "kernel"], check=True)
    modules = sorted((out / "kernel" / "modules").glob("*.ko"))
    assert len(modules) == 3, modules
    guest = Guest("6.1", "guest-kallsyms.sh", modules, HERE.__class__(kept).resolve() / "kallsyms" if kept else out / "guest")
    assert guest.status == 0, guest.output
    return guest


class Symbols:
    """Groups of symbols by address."""

    def __init__(self, text):
        self.at = collections.defaultdict(list)
        for line in text.splitlines():
            address, kind, name, *module = line.split()
            self.at[int(address, 16)].append((kind, name, module[0] if module else ""))
        self.at.pop(0, None)
        self.order = sorted(self.at)

    def code(self, i):
        """What could name code at the i-th address."""
        return [s for s in self.at[self.order[i]] if s[0] in "tTwW"]

    def right(self, address):
        """{(start, name, module)} that are right; empty: none is."""
        i = bisect.bisect_right(self.order, address) - 1
        if i < 0:
            return set()
        start = self.order[i]
        here = [(n, m) for _, n, m in self.code(i) if not is_mark(n)]
        if not here:
            return set()
        after = self.code(i + 1) if i + 1 < len(self.order) else []
        found = set()
        for name, module in here:
            goes_on = any(m == module for _, _, m in after)
            if address - start < (GAP if goes_on else LAST_GAP):
                found.add((start, name, module))
        return found


def is_mark(name):
    name = name.removeprefix("__pi_")
    return name in MARKS or (len(name) > 8 and name.startswith("__") and name.endswith(("_start", "_end", "_begin")))


def draw(symbols, modules):
    """Two thirds in the kernel's text, the rest in and around the modules."""
    named = {n: a for a, group in symbols.at.items() for _, n, m in group if not m}
    rng = random.Random(61)
    addresses = [rng.randrange(named["_stext"], named["_etext"]) for _ in range(COUNT * 2 // 3)]
    while len(addresses) < COUNT:
        base, size = rng.choice(modules)
        addresses.append(rng.randrange(base - 4096, base + size + 8192))
    return addresses


def test_kallsyms__names__are_those_of_an_independent_look_up(guest):
    symbols = Symbols(guest.text("kallsyms"))
    modules = {}
    for line in guest.text("modules").splitlines():
        words = line.split()
        modules[words[0]] = int(words[5], 16), int(words[1])
    assert len(modules) >= 3, modules
    addresses = draw(symbols, list(modules.values()))
    subprocess.run(["ninja", "-C", BUILD, "tests/symbols/name-addresses"], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([BUILD / "tests" / "symbols" / "name-addresses", "-k", guest.out / "kallsyms"],
                          input="".join(f"{a:#x}\n" for a in addresses), capture_output=True, text=True, check=True)
    ours = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(ours) == len(addresses)
    wrong, named, of_modules = [], 0, collections.Counter()
    for address, (_, start, name, *module) in zip(addresses, ours):
        right = symbols.right(address)
        if name == "-":
            wrong += [(hex(address), name, right)] if right else []
            continue
        named += 1
        module = module[0] if module else ""
        of_modules[module] += 1
        if (int(start, 16), name, module) not in right:
            wrong.append((hex(address), start, name, module, right))
        if module:
            base, size = modules[module.strip("[]")]
            # The text of a module lies inside what /proc/modules gives it.
            assert base <= int(start, 16) < base + size, (hex(address), name, module)
    print(f"{COUNT} addresses, {named} named, {len(wrong)} differ; by module {dict(of_modules)}")
    assert not wrong, wrong[:5]
    assert named > COUNT / 2 and sum(1 for m in of_modules if m) >= 3, of_modules
