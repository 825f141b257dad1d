# SPDX-License-Identifier: Apache-2.0
"""Whole stacks without frame pointers, over the corpus of tests/unwind and the field cases of kind `unwind`.

Each sample's chain is compared, root to leaf, with what is right (chains.py): no wrong one in any
program, and at least 99 of 100 whole once the program's tables had time to be made.
"""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import chains
import pytest
import rig

HZ = 499
# What the tables of a program that runs already may take to be made.
READY_NS = rig.SECOND // 2
SPREAD = re.search(r"spread='([^']*)'", (rig.TESTS / "unwind" / "build").read_text())[1].split()


def all_builds():
    if not rig.LONG:
        return SPREAD
    return [f"{level}-{link}-{compiler}-{frame}-{cet}" for level in ("O0", "O2", "O3", "Os")
            for link in ("pie", "static", "staticpie") for compiler in ("gcc", "clang")
            for frame in ("fp", "nofp") for cet in ("cet", "nocet")]


def record_runner(directory, workloads, programs, *args, **options):
    """Records programs, two at a time, from their first instruction to their last."""
    return rig.record_command(
        directory, [workloads / "runner", "-j", 2, *programs, "--", *args], "-F", HZ,
        outputs=("folded", "pb.gz", "otlp"), seconds=300, **options)


def check_whole(verdict, least=0.99, leave_out=("warm",), scenarios=(), why=""):
    whole, every = verdict.share(leave_out)
    assert not verdict.wrong, f"{verdict.text()}\n{why}"
    assert whole >= least * every > 0, f"{verdict.text()}\n{why}"
    missing = set(scenarios) - {s for (k, s) in verdict.counts if k == "whole"}
    assert not missing, f"no whole stack of {missing}\n{verdict.text()}\n{why}"


# ------------------------------------------------------------------------------------ the corpus


@pytest.fixture(scope="module")
def family(tmp_path_factory, workloads, corpus):
    """build -> the verdict over its samples. Twelve programs to a recording."""
    found = {}
    builds = all_builds()
    for at in range(0, len(builds), 12):
        some = builds[at:at + 12]
        recorder = record_runner(tmp_path_factory.mktemp("family"), workloads,
                                 [corpus / f"family.{b}" for b in some], "-w", 500, "-n", 50)
        assert json.loads(recorder.command_out)["failed"] == 0
        for build in some:
            found[build] = chains.judge_otlp(chains.family_chains(build), recorder.otlp,
                                             chains.of_program(f"family.{build}"), READY_NS // 2)
    return found


@pytest.mark.parametrize("build", all_builds())
def test_family(build, family):
    check_whole(family[build], scenarios=set(chains.FAMILY) - {"start", "warm", "vfork", "syscall"})


def test_family_pooled(family):
    whole = every = 0
    for verdict in family.values():
        both = verdict.share()
        whole, every = whole + both[0], every + both[1]
    assert whole >= 0.995 * every > 0, "\n".join(f"{b}: {v.text()}" for b, v in family.items())


@pytest.fixture(scope="module")
def others(tmp_path_factory, workloads, corpus):
    """One recording of what is no family, each long enough to be warm."""
    programs = [p for p in sorted(corpus.iterdir())
                if p.name.startswith(("thrown.", "rusty.", "gopher"))]
    return record_runner(tmp_path_factory.mktemp("others"), workloads, programs, 800, 200)


@pytest.mark.parametrize("program", ["thrown.gcc", "thrown.clang", "thrown.static"])
def test_exceptions_in_flight(program, others):
    verdict = chains.judge_otlp(chains.Chains(chains.THROWN), others.otlp, chains.of_program(program), READY_NS)
    check_whole(verdict, scenarios=["cleanup", "caught", "storm"], why=others.why())


@pytest.mark.parametrize("program", ["rusty.abort", "rusty.unwind", "rusty.fp"])
def test_rust(program, others, corpus):
    """rusty.fp (case 8): its own code has frame pointers and no tables, the standard library has tables."""
    if not (corpus / program).exists():
        pytest.skip("no Rust compiler on this machine")
    verdict = chains.judge_otlp(chains.Chains(chains.RUSTY), others.otlp, chains.of_program(program), READY_NS)
    if program == "rusty.abort":
        # Its main has no call frame information: stacks end there, under that reason.
        assert not verdict.wrong and set(verdict.cut) <= {"no_unwind_rows"}, f"{verdict.text()}\n{others.why()}"
        assert ("whole", "thread") in verdict.counts and verdict.cut, verdict.text()
        return
    check_whole(verdict, scenarios=["plain", "sort", "thread"] + ["cleanup"] * (program == "rusty.unwind"),
                why=others.why())


def test_go(others, corpus):
    if not (corpus / "gopher").exists():
        pytest.skip("no Go toolchain on this machine")
    verdict = chains.judge_otlp(chains.Chains(chains.GOPHER), others.otlp, chains.of_program("gopher"), READY_NS)
    check_whole(verdict, scenarios=["plain", "sort", "thread"], why=others.why())


@pytest.mark.parametrize("program", ["musl.dynamic", "musl.static"])
def test_musl(program, tmp_path, workloads, corpus):
    """musl's C library has no call frame information: stacks may end there, under a reason, but not
    before it: the program's own part is there from main on."""
    recorder = record_runner(tmp_path, workloads, [corpus / program], "-w", 500, "-n", 40)
    judge = chains.family_chains("O2")
    verdict = chains.judge_otlp(judge, recorder.otlp, chains.of_program(program))
    assert not verdict.wrong, f"{verdict.text()}\n{recorder.why()}"
    had = Counter()
    for profile in recorder.otlp:
        for sample in profile.samples if chains.of_program(program)(profile.resource) else ():
            names = [judge.word(f["names"][-1]) for f in sample.stack if f["names"]]
            if {"u_plain", "u_deep", "u_alloca", "u_vector", "u_noreturn", "u_alt", "u_nested"} & set(names):
                had["main" in names or "u_thread" in names or "u_clone" in names] += len(sample.times)
    assert had[True] >= 0.99 * sum(had.values()) > 0, f"{had}\n{verdict.text()}\n{recorder.why()}"


def test_libraries_that_come_and_go_at_once(tmp_path, corpus):
    """A storm: nothing but openings. Whole or cut, never wrong."""
    recorder = rig.record_command(
        tmp_path, [corpus / "loaded", 100, 2, 300, corpus / "libone.so", corpus / "libtwo.so"], "-F", HZ,
        outputs=("folded", "pb.gz", "otlp"))
    verdict = chains.judge_otlp(chains.Chains(chains.LOADED), recorder.otlp, chains.of_program("loaded"))
    assert not verdict.wrong and sum(verdict.counts.values()) > 0, f"{verdict.text()}\n{recorder.why()}"


def test_nobody_of_the_corpus_outlives_its_program(targets, corpus):
    target = targets.start(corpus / f"family.{WHERE}", "-n", 1000000, "clone")
    children = Path(f"/proc/{target.pid}/task/{target.pid}/children")
    child = int(rig.wait_for(children.read_text, "a child").split()[0])
    rig.is_burning(child)
    target.kill()
    target.wait()
    rig.wait_for(lambda: not Path(f"/proc/{child}").exists(), "the end of the child")


# ------------------------------------------------------------------------------------ where it lies


WHERE = "O2-pie-gcc-nofp-cet"


def attached(directory, targets, argv, *args, seconds=1.5, **options):
    """Records a program that runs already; (recorder, its pid)."""
    target = targets.start(*argv, **options)
    rig.is_burning(target.pid)
    with rig.recording(directory, "-p", target.pid, "-F", HZ, *args, outputs=("folded", "pb.gz", "otlp")) as recorder:
        rig.run_for(seconds)
    return recorder, target.pid


def test_program_from_a_memfd(tmp_path, targets, corpus):
    recorder, pid = attached(tmp_path, targets, [corpus / f"family.{WHERE}", "--memfd", "-n", 100000, "plain"])
    verdict = chains.judge_otlp(chains.family_chains(WHERE), recorder.otlp, chains.of_pid(pid), READY_NS)
    check_whole(verdict, scenarios=["plain"], why=recorder.why())


def test_20_deleted_program(tmp_path, targets, corpus):
    victim = tmp_path / "victim"
    shutil.copy(corpus / f"family.{WHERE}", victim)
    target = targets.start(victim, "-n", 100000, "alloca")
    rig.is_burning(target.pid)
    victim.unlink()
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ, outputs=("folded", "pb.gz", "otlp")) as recorder:
        rig.run_for(1.5)
    verdict = chains.judge_otlp(chains.family_chains(WHERE), recorder.otlp, chains.of_pid(target.pid), READY_NS)
    check_whole(verdict, scenarios=["alloca"], why=recorder.why())


# ------------------------------------------------------------------------------------ field cases


def check_case(name, directory, targets, argv, *args, least=0.99, seconds=1.5, words=None):
    recorder, pid = attached(directory, targets, argv, *args, seconds=seconds)
    verdict = chains.judge_otlp(chains.case_chains(name, **(words or {})), recorder.otlp, chains.of_pid(pid), READY_NS)
    check_whole(verdict, least, why=recorder.why())
    return recorder


@pytest.mark.parametrize("program", ["vforker", "vforker.fp"])
def test_1_vfork(program, tmp_path, targets, cases):
    """In vfork the return address is in a register, also when the next frame goes by frame pointer."""
    target = targets.start(cases / program, cases / "briefs")
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-a", "-F", 3999, outputs=("folded", "pb.gz", "otlp")) as recorder:
        rig.run_for(3)
    verdict = chains.judge_otlp(chains.case_chains("vforker"), recorder.otlp, chains.of_pid(target.pid), READY_NS)
    check_whole(verdict, 0.99, why=recorder.why())
    assert recorder.folded.has("main", "spawn_loop", "spawn_one"), recorder.why()
    # By its name where the C library has names, by offset where it has not.
    last = {line.user[-1] for line in recorder.folded.of(program) if line.user[-2:-1] == ["spawn_one"]}
    assert last, recorder.why()


def test_2_call_is_the_last_instruction(tmp_path, targets, cases):
    recorder = check_case("lastcall", tmp_path, targets, [cases / "lastcall"])
    assert not recorder.folded.has("decoy"), recorder.why()


@pytest.mark.parametrize("stack", [[], ["alt"]])
def test_4_handler_and_first_instruction(stack, tmp_path, targets, cases):
    check_case("sigfirst", tmp_path, targets, [cases / "sigfirst", *stack])


def test_4_restorer_without_cfi(tmp_path, targets, cases):
    recorder = check_case("rawsig", tmp_path, targets, [cases / "rawsig"])
    assert not recorder.folded.has("frame_dummy"), recorder.why()


def test_5_realigned_stack(tmp_path, targets, cases):
    check_case("realign", tmp_path, targets, [cases / "realign"])


def test_5_stubs_of_the_plt(tmp_path, targets, cases):
    recorder, _ = attached(tmp_path, targets, [cases / "plt"], "-F", 1999, seconds=2.5)
    stubs = [line for line in recorder.folded.of("plt") if line.leaf.endswith("@plt") or line.leaf == "[plt]"]
    assert stubs, recorder.why()
    for line in stubs:
        assert line.is_cut or (line.user[0], line.user[-2]) == ("_start", "main"), line.text
    assert sum(line.value for line in stubs if not line.is_cut) >= 0.9 * sum(line.value for line in stubs), recorder.why()


@pytest.mark.parametrize("depth", [126, 127, 128, 500, 1000])
def test_6_deep_recursion(depth, tmp_path, targets, cases):
    recorder = check_case("deep", tmp_path, targets, [cases / "deep", depth], words={"DEPTH": depth + 1})
    assert recorder.summary["stacks"]["cut"]["depth_limit"] == 0, recorder.why()


@pytest.mark.parametrize("depth", [1023, 1024, 1500, 5000])
def test_6_deeper_than_the_limit(depth, tmp_path, targets, cases):
    """The frames nearest the leaf under one root that says so; no sample is lost, and the leaf has all."""
    recorder, _ = attached(tmp_path, targets, [cases / "deep", depth])
    lines = recorder.folded.of("deep")
    roots = Counter()
    for line in lines:
        roots[line.frames[0]] += line.value
    cut = {root: ns for root, ns in roots.items() if root.startswith("[truncated")}
    assert len(cut) == 1 and sum(cut.values()) >= 0.6 * sum(roots.values()), f"{roots}\n{recorder.error_text()}"
    limit = int(re.search(r"\d+", next(iter(cut)))[0])
    for line in lines:
        if line.frames[0] in cut:
            assert len(line.user) == limit and line.user[-1] == "leaf_spin", line.text[-200:]
            assert set(line.user[:-1]) == {"rec"}, set(line.user)
    assert recorder.folded.leaves("deep")["leaf_spin"] >= 0.99 * recorder.folded.total
    assert recorder.summary["stacks"]["cut"]["depth_limit"] > 0
    assert recorder.dropped == 0, recorder.summary


def test_8_frame_pointers_and_no_table(tmp_path, targets, cases):
    check_case("deep", tmp_path, targets, [cases / "deep.fponly", 20], words={"DEPTH": 21})


@pytest.mark.parametrize("program", ["zfde.lld", "zfde.bfd"])
def test_10_search_table_that_lies(program, tmp_path, targets, cases):
    """lld's .eh_frame_hdr has lost a function to one of no length before it."""
    check_case("zfde", tmp_path, targets, [cases / program])


def test_10_no_search_table(tmp_path, targets, cases):
    check_case("deep", tmp_path, targets, [cases / "deep.nohdr", 20], words={"DEPTH": 21})


def test_12_coroutine(tmp_path, targets, cases):
    """What lies above a fiber's first frame is no frame."""
    check_case("ucontext", tmp_path, targets, [cases / "ucontext"])


def test_13_prologue_and_epilogue(tmp_path, targets, cases):
    check_case("proep", tmp_path, targets, [cases / "proep"])


def test_13_tail_call(tmp_path, targets, cases):
    recorder = check_case("tail", tmp_path, targets, [cases / "tail"])
    assert not recorder.folded.has("tailer"), recorder.why()


@pytest.mark.parametrize("which", [1, 2])
def test_code_whose_rows_lie_or_lack(which, tmp_path, targets, cases):
    """1: the CFA it gives is below the stack pointer. 2: no rows and no frame pointer. A reason, no frame."""
    argv = [cases / "bad", *["x"] * (which - 1)]
    recorder, pid = attached(tmp_path, targets, argv)
    verdict = chains.judge_otlp(chains.case_chains("bad"), recorder.otlp, chains.of_pid(pid))
    assert not verdict.wrong and sum(verdict.counts.values()) > 0, f"{verdict.text()}\n{recorder.why()}"
    reasons = recorder.summary["stacks"]["cut"]
    assert sum(reasons[r] for r in ("unwind_lost", "no_unwind_rows", "unwind_unsupported")) > 0, recorder.why()


# ------------------------------------------------------------------------------------ whole chains of others


@pytest.mark.parametrize("program", ["deep.lld", "deep.base", "npdeep", "spdeep", "sdeep"])
def test_25_segments(program, tmp_path, targets, cases):
    check_case("deep", tmp_path, targets, [cases / program, 20], words={"DEPTH": 21})


def test_21_one_path_two_files(tmp_path, targets, cases):
    """In a mount namespace another file lies at the path: each is unwound by its own table."""
    inside = tmp_path / "inside"
    inside.mkdir()
    shutil.copy(cases / "deep", tmp_path / "app")
    shutil.copy(cases / "realign", inside / "app")
    script = 'mount --bind "$1" "$2" && exec "$2" 1'
    inner = targets.start("unshare", "-m", "sh", "-c", script, "sh", inside / "app", tmp_path / "app")
    outer = targets.start(tmp_path / "app", 10)
    for target in (inner, outer):
        rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", f"{inner.pid},{outer.pid}", "-F", HZ,
                       outputs=("folded", "pb.gz", "otlp")) as recorder:
        rig.run_for(2)
    for target, name, words in ((inner, "realign", {}), (outer, "deep", {"DEPTH": 11})):
        verdict = chains.judge_otlp(chains.case_chains(name, **words), recorder.otlp, chains.of_pid(target.pid), READY_NS)
        check_whole(verdict, why=recorder.why())


def test_18_short_programs(tmp_path, targets, cases):
    """Programs of 5 to 10 ms: at least nine samples in ten of brief_work have main above it, none is wrong."""
    targets.start(cases / "churn", 600, cases / "brief")
    with rig.recording(tmp_path, "-a", "-F", HZ, outputs=("folded", "pb.gz", "otlp")) as recorder:
        rig.run_for(20 if rig.LONG else 4)
    judge = chains.case_chains("brief")
    verdict = chains.judge_otlp(judge, recorder.otlp, chains.of_program("brief"))
    assert not verdict.wrong, f"{verdict.text()}\n{recorder.why()}"
    with_main = every = 0
    for line in recorder.folded.of("brief"):
        if "brief_work" in line.user:
            every += line.value
            with_main += line.value if line.user[-2:-1] == ["main"] else 0
    assert with_main >= 0.9 * every > 0, f"{with_main} of {every}\n{verdict.text()}\n{recorder.why()}"
