# SPDX-License-Identifier: Apache-2.0
"""The chains of calls that are right for the programs of tests/unwind, and a judge of sampled ones.

A chain is written root to leaf, one word a frame:

    u_name, main, _start    this function
    lib                     any function that is none of the program's own: the C library's, a restorer's
    word? word* word+ word{2} word{0,3}

A sample is taken anywhere, so every beginning of a chain is right, too. A whole stack is one that
begins at the chain's root. A stack that says it is cut may lack frames at the root, never inside.
The judge reads names; that a stack is cut is the only thing it takes from flyball, and a stack that
lacks its root counts as not whole whether it says so or not, and as wrong if it does not; but for one
that lacks the C library's start code alone, which flyball takes for complete where frame pointers end there.
"""

import re
from collections import Counter

# Between _start and main, and below what main calls scenarios by.
MAIN = "_start lib{0,4} main "
EACH = MAIN + "u_run? u_each? "
ONCE = MAIN + "u_run? "
THREAD = "lib{1,3} "

FAMILY = {
    "warm": [EACH + "u_warm u_plain_mid u_spin"],
    "plain": [EACH + "u_plain u_plain_mid u_spin"],
    "deep": [EACH + "u_deep u_rec{DEPTH} u_spin"],
    "varargs": [EACH + "u_varargs u_varargs_mid u_spin"],
    "tail": [EACH + "u_tail TAILER u_spin"],
    "noreturn": [EACH + "u_noreturn u_last u_never u_spin", EACH + "u_noreturn u_last u_never lib{1,2}",
                 EACH + "u_noreturn lib{1,2}"],
    "proep": [EACH + "u_proep u_tiny"],
    "alloca": [EACH + "u_alloca u_alloca_mid u_spin"],
    "vector": [EACH + "u_vector u_vector_mid u_spin"],
    "setjmp": [EACH + "u_setjmp u_jumped u_spin", EACH + "u_setjmp u_jump lib{0,3}", EACH + "u_setjmp lib{1,3}"],
    "qsort": [EACH + "u_qsort lib{1,8} u_compare u_spin"],
    "plt": [EACH + "u_plt lib{0,2}"],
    "vdso": [EACH + "u_vdso lib{0,4}"],
    "syscall": [EACH + "u_syscall lib{0,2}"],
    "alt": [EACH + "u_alt u_trap lib u_on_trap u_second u_spin", EACH + "u_alt u_trap lib u_on_trap u_skip_trap"],
    "nested": [EACH + "u_nested u_trap lib u_on_trap u_first u_trap lib u_on_trap u_second u_spin",
               EACH + "u_nested u_trap lib u_on_trap u_first u_trap lib u_on_trap u_skip_trap"],
    "raise": [EACH + "u_raise lib{1,5} u_on_raise u_spin"],
    "vfork": [EACH + "u_vfork u_spin", EACH + "u_vfork lib{1,4}"],
    "thread": [THREAD + "u_thread u_each? u_plain u_plain_mid u_spin", ONCE + "u_start_thread lib*"],
    "clone": ["lib u_clone u_each? u_plain u_plain_mid u_spin", "lib u_clone u_die_with lib{0,2}",
              ONCE + "u_start_clone lib*"],
    "fiber": ["lib? u_fiber u_each? u_plain u_plain_mid u_spin", ONCE + "u_start_fiber lib*",
              ONCE + "u_start_fiber lib? u_fiber u_each? u_plain u_plain_mid u_spin"],
    "start": ["_start lib{0,4} main u_run? u_signals? lib*", "_start lib*"],
}
THROWN = {
    "warm": [MAIN + "u_warm u_spin"],
    "cleanup": [MAIN + "u_throw u_throw_mid lib? u_cleanup u_spin"],
    "thrower": [MAIN + "u_throw u_throw_mid u_thrower lib*"],
    "resume": [MAIN + "u_throw u_throw_mid lib*"],
    "caught": [MAIN + "u_throw u_caught u_spin", MAIN + "u_throw lib*"],
    # While the unwinder goes to the landing pad, its own return address is that of the pad.
    "storm": [MAIN + "u_storm u_thrower lib*", MAIN + "u_storm lib*", MAIN + "u_storm u_thrower u_storm lib*"],
    "start": ["_start lib*", MAIN + "lib*"],
}
LOADED = {
    "warm": [MAIN + "u_warm"],
    "loaded": [MAIN + "u_loaded u_library u_library_spin"],
    "loading": [MAIN + "u_loaded lib*"],
    "start": ["_start lib*", MAIN + "lib*"],
}
# Rust's main stands between the C library's and ours.
RUST = "_start lib{0,4} main lib{1,9} "
RUSTY = {
    "warm": [RUST + "u_warm u_spin"],
    "plain": [RUST + "u_plain u_plain_mid u_spin"],
    "sort": [RUST + "u_sort lib{1,9} u_spin", RUST + "u_sort lib*"],
    "cleanup": [RUST + "u_throw lib{0,4} u_throw_mid u_cleanup u_spin"],
    "thrower": [RUST + "u_throw lib{0,4} u_throw_mid u_thrower lib*", RUST + "u_throw lib{0,4} u_throw_mid lib*",
                RUST + "u_throw lib*"],
    "thread": ["lib{3,12} u_plain u_plain_mid u_spin"],
    "start": ["_start lib*", "_start lib{0,4} main lib*"],
}
# runtime.goexit, runtime.main, main.main
# The runtime's signals stop a goroutine anywhere, and call into it from there.
GOPHER = {
    "warm": ["lib lib main.main main.u_warm main.u_spin lib*"],
    "plain": ["lib lib main.main main.u_plain main.u_plain_mid main.u_spin lib*"],
    "sort": ["lib lib main.main main.u_sort lib{1,6} main.u_sort.func1 main.u_spin lib*", "lib lib main.main main.u_sort lib*"],
    "thread": ["lib{1,2} main.u_thread main.u_plain main.u_plain_mid main.u_spin lib*"],
}

# Field cases (tests/cases), by program.
CASES = {
    "vforker": [MAIN + "spawn_loop spawn_one lib{1,4}", MAIN + "spawn_loop spawn_one"],
    "lastcall": [MAIN + "caller spin"],
    "sigfirst": [MAIN + "outer trap_here lib handler spin"],
    "rawsig": [MAIN + "outer lib myrestore handler spin"],
    "realign": [MAIN + "outer mid hot"],
    "deep": [MAIN + "rec{DEPTH} leaf_spin"],
    "zfde": [MAIN + "outer real_fn"],
    "ucontext": ["lib? fiber spin"],
    "proep": [MAIN + "A tiny"],
    "tail": ["_start lib{0,4} main? normal leaf"],
    "bad": [MAIN + "outer badcfi", MAIN + "outer nocfi", MAIN + "outer zerosz"],
    "brief": [MAIN + "brief_work", MAIN + "lib*"],
}

WORD = re.compile(r"([\w.]+)([?*+]|\{\d+(?:,\d+)?\})?")
OWN = re.compile(r"(?:main\.)?(?:u_\w+(?:\.func1)?|main)|_start")
CLONED = re.compile(r"(?: \[clone )?\.(?:constprop|isra|part|cold)(?:\.\d+)?\]?")
# Of these a stack may consist without saying anything of the unwinder: the start and the end.
EVERYWHERE = {"lib", "main", "main.main", "_start"}


class Chains:
    """The right chains of one program."""

    def __init__(self, scenarios, **words):
        self.whole, self.part, self.near, self.own = {}, {}, {}, set()
        for scenario, chains in scenarios.items():
            for chain in chains:
                for word, text in words.items():
                    chain = chain.replace(word, str(text))
                parsed = [WORD.fullmatch(word).groups() for word in chain.split()]
                self.own |= {word for word, _ in parsed}
                pieces = [self.piece(*both) for both in parsed]
                self.whole.setdefault(scenario, []).append(re.compile(self.nested(pieces)))
                # Cut at the root: from any piece on; a repeated piece may have lost some of its own.
                starts = [self.nested([self.loose(pieces[i]), *pieces[i + 1:]]) for i in range(len(pieces))]
                self.part.setdefault(scenario, []).append(re.compile("|".join(starts)))
                self.near.setdefault(scenario, []).append(re.compile("|".join(starts[:2])))

    @staticmethod
    def piece(word, how_many):
        return f"(?:{re.escape(word)};){how_many or ''}"

    @staticmethod
    def loose(piece):
        """The same, fewer of it allowed."""
        most = re.search(r"\{(?:\d+,)?(\d+)\}$", piece)
        return re.sub(r"\{[\d,]+\}$", f"{{0,{most[1]}}}", piece) if most else piece

    @staticmethod
    def nested(pieces):
        """Every beginning of the pieces, of one frame at least."""
        text = ""
        for piece in reversed(pieces):
            base, repeat = re.fullmatch(r"(\(\?:[^()]*;\))(.*)", piece).groups()
            most = re.fullmatch(r"\{(?:\d+,)?(\d+)\}", repeat)
            begun = f"{base}{{0,{most[1]}}}" if most else base + "?"
            text = f"(?:{piece}{text}|{begun})" if text else begun if most else f"{piece}"
        return text

    def word(self, name):
        """What stands for a frame in a chain; names of clones are those of what they were cloned from."""
        name = CLONED.sub("", name)
        return name if name in self.own or OWN.fullmatch(name) else "lib"

    def judge(self, names, is_cut):
        """names: root to leaf. ("whole" | "cut" | "near" | "wrong" | "other", scenario)."""
        words = [self.word(name) for name in names]
        if set(words) <= EVERYWHERE:
            return "other", "start"
        text = "".join(word + ";" for word in words)
        for scenario, patterns in self.whole.items():
            if any(p.fullmatch(text) for p in patterns):
                return "whole", scenario
        for scenario, patterns in (self.part if is_cut else self.near).items():
            if any(p.fullmatch(text) for p in patterns):
                return "cut" if is_cut else "near", scenario
        return "wrong", next(w for w in words if w not in EVERYWHERE)


class Verdict:
    """What a recording's samples of one program were."""

    def __init__(self):
        self.counts, self.cut, self.wrong, self.examples = Counter(), Counter(), 0, Counter()

    def add(self, kind, scenario, names, reason, count=1):
        if kind == "other":
            return
        if kind == "wrong":
            self.wrong += count
        else:
            self.counts[kind, scenario] += count
        if kind == "cut":
            self.cut[reason] += count
        if kind != "whole":
            self.examples[f"{kind} {reason or ''} {';'.join(names)}"] += count

    def share(self, leave_out=("warm",)):
        """(whole samples, all samples): of all scenarios but those to warm up by."""
        every = sum(n for (_, s), n in self.counts.items() if s not in leave_out) + self.wrong
        return sum(n for (k, s), n in self.counts.items() if k == "whole" and s not in leave_out), every

    def scenarios(self):
        return {s for (_, s) in self.counts}

    def text(self):
        whole, every = self.share()
        lines = [f"{whole} of {every} whole, {self.wrong} wrong, cut by {dict(self.cut)}"]
        lines += [f"  {n} x {text[:600]}" for text, n in self.examples.most_common(12)]
        return "\n".join(lines)


def family_chains(build, depth=100):
    """build: O2-pie-gcc-nofp-cet. Below -O1 compilers make no jump of a last call."""
    return Chains(FAMILY, DEPTH=depth, TAILER="u_tailer" if build.startswith("O0") else "u_tailer{0}")


def case_chains(program, **words):
    return Chains({program: CASES[program]}, **words)


def judge_otlp(chains, otlp, wanted, skip_ns=0):
    """The verdict over the samples of those processes whose resource `wanted` says yes to, but for
    the first `skip_ns` of each: its tables have to be made first. Children that live for less count whole."""
    verdict = Verdict()
    for profile in otlp:
        if not wanted(profile.resource):
            continue
        times = [t for s in profile.samples for t in s.times]
        first = min(times, default=0)
        if max(times, default=0) - first > skip_ns:
            first += skip_ns
        for sample in profile.samples:
            count = sum(t >= first for t in sample.times)
            frames = [f for f in reversed(sample.stack) if f["attributes"].get("profile.frame.type") == "native"]
            names = [f["names"][-1] if f["names"] else "?" for f in frames]
            if names and count:
                reason = sample.attributes.get("flyball.cut", "")
                kind, scenario = chains.judge(names, bool(reason))
                verdict.add(kind, scenario, names, reason, count)
    return verdict


def of_pid(pid):
    return lambda resource: resource.get("process.pid") == pid


def of_program(name):
    return lambda resource: resource.get("process.executable.path", "").rsplit("/", 1)[-1] == name
