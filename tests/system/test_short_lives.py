# SPDX-License-Identifier: Apache-2.0
"""Programs that are gone before anybody looks, and programs that live in odd ways."""

import json
import re
import subprocess

import pytest
import rig

COUNT = 500
# Frames of the C library, the loader and the vDSO are not the program's: the names of flyball's
# module+0xoffset form, and what exec'd programs of this size pass through.
SYSTEM_MODULES = re.compile(r"/(libc\.so|libc-|ld-linux|ld-)|^\[vdso\]")
REASONS_OF_FILES = {"file_gone", "file_denied", "file_replaced", "open_timeout", "read_timeout",
                    "helper_limit", "mapping_unknown", "no_time"}


def user_leaves(pprof, pids):
    """(leaf frame, labels, ns) of each sample of these processes whose innermost frame is user code of its own."""
    for sample in pprof.samples:
        if sample.labels.get("pid") not in pids or not sample.frames:
            continue
        leaf = sample.frames[0]
        path = leaf.mapping.path if leaf.mapping else ""
        if path.startswith("[kernel") or SYSTEM_MODULES.search(path):
            continue
        yield leaf, sample.labels, sample.values[-1]


def check_brief(recorder, truth, function_of, least, comm_of=None):
    """The share of user samples with the right function, and the sum of weights."""
    pids = set(truth["pids"])
    right = wrong = 0
    bad = {}
    for leaf, labels, ns in user_leaves(recorder.pprof, pids):
        comm = labels.get("comm", "")
        if comm == "runner":  # before its exec
            continue
        # A stub of the linker's, through which the function calls the library, is what it says.
        if leaf.name == function_of(comm) or leaf.name == "clock_gettime@plt":
            right += ns
        else:
            wrong += ns
            key = (comm, leaf.name, leaf.mapping.path if leaf.mapping else "")
            bad[key] = bad.get(key, 0) + ns
    assert right >= least * (right + wrong) > 0, \
        f"{right / max(1, right + wrong):.4f} of user time has the right function; wrong: {bad}\n{recorder.why()}"
    weight = sum(ns for pid, ns in recorder.pprof.by("pid").items() if pid in pids)
    cost = truth["user_ns"] + truth["system_ns"]
    assert weight >= 0.95 * cost, f"weights {weight / 1e9:.3f} s of {cost / 1e9:.3f} s\n{recorder.why()}"
    return bad


def record_runner(directory, argv, *args, **options):
    with rig.recording(directory, "-a", *args, **options) as recorder:
        out = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=True).stdout
    truth = json.loads(out.splitlines()[-1])
    assert truth["failed"] == 0, truth
    return recorder, truth


@pytest.mark.parametrize("program", ["brief20", "brief20.nofp"])
def test_five_hundred_short_programs(program, tmp_path, workloads):
    # The fewer programs, the higher the rate: the sum of weights is to be within 5 % by more than chance.
    count, hz = (COUNT, 99) if program == "brief20" else (COUNT // 5, 499)
    recorder, truth = record_runner(tmp_path, [workloads / "runner", "-j", 2, "-n", count, workloads / program], "-F", hz)
    assert truth["runs"] == count
    check_brief(recorder, truth, lambda comm: "brief_work_000", 0.99)


def test_hundred_programs_deleted_at_exit(tmp_path, workloads):
    programs = rig.make_distinct(workloads / "brief20.pattern", tmp_path, 100)
    recorder, truth = record_runner(
        tmp_path, [workloads / "runner", "-j", 2, "-n", 100, *(p for p, _ in programs.values()), "--", "-u"],
        "-F", 499)
    assert not list(tmp_path.glob("distinct*"))
    bad = check_brief(recorder, truth, lambda comm: programs.get(comm, ("", ""))[1], 0.90)
    check_reasons(recorder, bad)


def check_reasons(recorder, bad):
    """What has no name says why: no frame carries a neighbour's."""
    for (_, name, _), _ns in bad.items():
        assert not name.startswith("brief_work_"), f"a name of another program: {bad}"
    if bad:
        unnamed = {k for k, n in recorder.summary["stacks"]["unnamed"].items() if n}
        assert unnamed, recorder.why()


def test_short_programs_in_another_mount_namespace(tmp_path, workloads):
    """Programs whose path means nothing out here: a tmpfs only they see."""
    programs = rig.make_distinct(workloads / "brief20.pattern", tmp_path, 100, prefix="inside")
    inside = tmp_path / "mnt"
    inside.mkdir()
    script = ('mount -t tmpfs none "$1" && cp "$2"/inside* "$1" && cd "$1" && shift 2 && '
              'exec "$0" -j 2 -n 100 "$@" ./inside*')
    recorder, truth = record_runner(
        tmp_path, ["unshare", "-m", "sh", "-c", script, workloads / "runner", inside, tmp_path], "-F", 499)
    assert truth["runs"] == 100
    bad = check_brief(recorder, truth, lambda comm: programs.get(comm, ("", ""))[1], 0.90)
    check_reasons(recorder, bad)


def test_18_churn(tmp_path, targets, cases):
    """Programs of 5 to 10 ms by the hundred, dynamic and static, beside threads by the thousand."""
    targets.start(cases / "churn", 600, cases / "brief")
    targets.start(cases / "churn", 600, cases / "briefs")
    targets.start(cases / "forkchurn", 600)
    with rig.recording(tmp_path, "-a", "-F", 199) as recorder:
        rig.run_for(60 if rig.LONG else 6)
    for comm in ("brief", "briefs"):
        right = every = 0
        for sample in recorder.pprof.samples:
            leaf = sample.frames[0] if sample.frames else None
            path = leaf.mapping.path if leaf and leaf.mapping else ""
            if sample.labels["comm"] != comm or path.startswith("[kernel") or SYSTEM_MODULES.search(path):
                continue
            # The C library of the static one is in its own file.
            if comm == "briefs" and leaf.name != "brief_work" and leaf.names and "+0x" not in leaf.name:
                continue
            every += sample.values[0]
            right += sample.values[0] if leaf.name == "brief_work" else 0
        assert right >= 0.9 * every > 0, f"{comm}: {right} of {every}\n{recorder.why()}"


def test_exec_ring(tmp_path, workloads):
    """A becomes B becomes A, every 5 ms: never a name of the other one."""
    recorder = rig.record_command(
        tmp_path, [workloads / "execa", 400, workloads / "execb", workloads / "execa"], "-F", 499)
    for comm, own, other in (("execa", "exec_a_work", "exec_b_work"), ("execb", "exec_b_work", "exec_a_work")):
        leaves = recorder.folded.leaves(comm)
        assert leaves[other] == 0, recorder.why()
        named = leaves[own]
        # The rest: crossing exec; the loader and the C library, which are not the program's.
        theirs = sum(labels["comm"] == comm and ns
                     for _, labels, ns in user_leaves(recorder.pprof, set(recorder.pprof.by("pid"))))
        assert named >= 0.95 * theirs, leaves
        assert named > 0.5 * rig.SECOND, leaves


def test_exec_by_another_thread_than_the_leader(tmp_path, workloads):
    recorder = rig.record_command(
        tmp_path, [workloads / "threadexec", workloads / "brief20", 1000], "-F", 499)
    leaves = recorder.folded.leaves("brief20")
    assert leaves["brief_work_000"] >= 0.9 * rig.SECOND, recorder.why()
    assert len(recorder.pprof.by("pid")) == 1
    tids = {s.labels["tid"] for s in recorder.pprof.samples if s.labels["comm"] == "brief20"}
    assert tids == set(recorder.pprof.by("pid")), tids


def test_leader_that_exits_first(tmp_path, workloads):
    recorder = rig.record_command(tmp_path, [workloads / "leaderexit", 1], "-F", 199)
    leaves = recorder.folded.leaves()
    assert leaves["orphan_work"] >= 0.95 * 2 * rig.SECOND, recorder.why()
    pid = json.loads(recorder.command_out)["pid"]
    assert set(recorder.pprof.by("pid")) == {pid}


def test_leader_that_exited_before_we_came(tmp_path, targets, workloads):
    """/proc/PID/maps of such a process is empty; its threads' are not."""
    target = targets.start(workloads / "leaderexit", 600)
    rig.wait_for(lambda: rig.proc_stat(target.pid)[0] == "Z", "the leader is gone")
    with rig.recording(tmp_path, "-p", target.pid) as recorder:
        rig.run_for(1.5)
    leaves = recorder.folded.leaves()
    assert leaves["orphan_work"] >= 0.9 * recorder.folded.total > 0, recorder.why()


def test_children_that_share_memory(tmp_path, workloads):
    """vfork and CLONE_VM children send no mapping events of their own."""
    recorder = rig.record_command(tmp_path, [workloads / "sharedvm", 1.5], "-F", 499)
    leaves = recorder.folded.leaves()
    for name in ("vfork_child_work", "vm_child_work", "vm_parent_work"):
        assert abs(leaves[name] - 0.5 * rig.SECOND) <= 0.15 * rig.SECOND, recorder.why()


def test_program_from_a_memfd(tmp_path, workloads):
    recorder = rig.record_command(tmp_path, [workloads / "memfdexec", workloads / "brief20", 500], "-F", 199)
    assert recorder.folded.leaves()["brief_work_000"] >= 0.8 * 500e6, recorder.why()


def test_libraries_that_take_turns_at_one_address(tmp_path, cases):
    """dlopen, dlclose and dlopen of another at the same place: unmapping sends no event."""
    recorder = rig.record_command(tmp_path, [cases / "dl", 60], "-F", 499, cwd=cases)
    assert "reused the same address" in recorder.error_text()
    leaves = recorder.folded.leaves()
    alpha, bravo = leaves["alpha_work"], leaves["bravo_work"]
    assert alpha > 0 and bravo > 0 and 0.8 <= alpha / bravo <= 1.25, recorder.why()


def test_32_bit_process(tmp_path, cases, targets):
    """A flagged partial stack, never garbage."""
    target = targets.start(cases / "m32")
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid) as recorder:
        rig.run_for(1)
    assert recorder.kind["delivered"] > 0
    user = [line for line in recorder.folded if line.user]
    assert all(len(line.user) == 1 for line in user), recorder.why()
    assert all(line.leaf in ("spin", "mid") for line in user), recorder.why()
    assert recorder.summary["stacks"]["cut"]["compat_task"] > 0, recorder.why()


def test_code_without_a_file(tmp_path, cases):
    """A JIT: delivered by address, under a reason."""
    recorder = rig.record_command(tmp_path, [cases / "jit", tmp_path / "jit.map"], "-F", 99, "-d", "2")
    assert recorder.summary["stacks"]["unnamed"]["anonymous"] > 0, recorder.why()


def test_memory_stays_bounded_under_churn(tmp_path, targets, workloads, cases):
    """Many processes: the whole of flyball stays within its 40 MiB, and its descriptors do not pile up."""
    targets.start(cases / "churn", 600, cases / "brief")
    targets.start(cases / "churn", 600, cases / "briefs")
    with rig.recording(tmp_path, "-a") as recorder:
        pids = [recorder.main, *rig.descendants(recorder.main)]
        rig.run_for(3)
        before = sum(len(rig.os.listdir(f"/proc/{pid}/fd")) for pid in pids)
        rig.run_for(20 if rig.LONG else 5)
        after = sum(len(rig.os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    assert after <= before * 1.05 + 64, f"descriptors grew from {before} to {after}"
    if not rig.IS_ASAN:
        assert recorder.summary["cost"]["peak_anon_bytes"] <= 40 << 20, recorder.summary["cost"]
