# SPDX-License-Identifier: Apache-2.0
"""Field cases of kind `map`: which file's code it is. 16, 20, 21, 25, and forged build-ids."""

import contextlib
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import rig

# For 1.5 s at 199 Hz some 300 samples; a target that shares its CPU gets a third at worst.
HZ = 199


def frames_of(recorder, comm):
    return {frame for line in recorder.folded.of(comm) for frame in line.user}


def check_leaf(recorder, root, leaf, forbidden=()):
    """Nearly all user time of `root` is in `leaf` (the rest: start-up), and no forbidden name shows."""
    leaves = recorder.folded.leaves(root)
    total = sum(ns for name, ns in leaves.items() if name)
    assert total > 0 and leaves[leaf] >= 0.95 * total, recorder.why()
    for name in forbidden:
        assert name not in frames_of(recorder, root), recorder.why()


def mappings_of(recorder, pid, leaf):
    """(path, build-id) of the files that hold this leaf in samples of a process."""
    return {(s.user[0].mapping.path, s.user[0].mapping.build_id)
            for s in recorder.pprof.samples if s.labels["pid"] == pid and s.user and s.user[0].name == leaf}


# ------------------------------------------------------------------------------------ 16


def test_16_pid_reused(tmp_path, targets, cases):
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        first = targets.start(cases / "deep", 5)
        rig.is_burning(first.pid)
        rig.run_for(0.7)
        rig.kill(first)
        second = subprocess.run([sys.executable, rig.TESTS / "cases" / "settid.py", str(first.pid), cases / "realign"],
                                capture_output=True, text=True, check=True)
        assert int(second.stdout) == first.pid
        try:
            rig.is_burning(first.pid)
            rig.run_for(0.7)
        finally:
            rig.os.kill(first.pid, rig.signal.SIGKILL)
    check_leaf(recorder, "deep", "leaf_spin", ["hot", "mid"])
    check_leaf(recorder, "realign", "hot", ["leaf_spin", "rec"])
    for sample in recorder.pprof.samples:
        if sample.labels["pid"] == first.pid and sample.user:
            ours = {"deep": "leaf_spin", "realign": "hot"}.get(sample.labels["comm"])
            if ours and sample.user[0].name in ("leaf_spin", "hot"):
                assert sample.user[0].name == ours


def test_16_pids_that_wrap(tmp_path, targets, workloads, cases):
    """A namespace of 310 pids, used up over and over by two programs."""
    script = ('sysctl -qw kernel.pid_max=310; "$0" -n 400 "$1/brief" "$1/briefs" -- 1500000 >/dev/null')
    with rig.recording(tmp_path, "-a", "-F", 499) as recorder:
        subprocess.run(["unshare", "-pf", "--mount-proc", "sh", "-c", script, workloads / "runner", cases],
                       check=True, capture_output=True)
    for comm in ("brief", "briefs"):
        leaves = recorder.folded.leaves(comm)
        assert leaves["brief_work"] > 0, recorder.why()
        if comm == "brief":  # the static one holds start-up code of the C library as well
            own = [s for s in recorder.pprof.samples if s.labels["comm"] == comm and s.user and s.user[0].mapping
                   and s.user[0].mapping.path.endswith("/brief")]
            hits = sum(s.values[0] for s in own if s.user[0].name == "brief_work")
            # Its own start-up code has names of the compiler's.
            program = sum(s.values[0] for s in own if not s.user[0].name.startswith("_"))
            assert hits >= 0.9 * program > 0, recorder.why()
        # The static one has its own file, and no sample of one is placed in the other's.
        other = {"brief": "/briefs", "briefs": "/brief"}[comm]
        for s in recorder.pprof.samples:
            if s.labels["comm"] == comm:
                assert not any(f.mapping and f.mapping.path.endswith(other) for f in s.frames), recorder.why()


# ------------------------------------------------------------------------------------ 20


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("how", ["replaced", "removed"])
@pytest.mark.parametrize("program", ["deep", "npdeep"])
def test_20_binary_gone_while_it_runs(program, how, when, tmp_path, targets, cases):
    """npdeep: addresses below 0x10000000 have no leading zeros in map_files."""
    victim = tmp_path / "victim"
    shutil.copy(cases / program, victim)
    shutil.copy(cases / "realign", tmp_path / "victim.new")
    target = targets.start(victim, 10)
    rig.is_burning(target.pid)

    def change():
        if how == "replaced":
            (tmp_path / "victim.new").rename(victim)
        else:
            victim.unlink()

    if when == "before":
        change()
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
        rig.run_for(0.3)
        if when == "during":
            change()
        rig.run_for(0.7)
    check_leaf(recorder, "victim", "leaf_spin", ["hot", "mid", "outer"])
    assert mappings_of(recorder, target.pid, "leaf_spin") == {(str(victim), rig.build_id(cases / program))}
    assert not any("(deleted)" in f for line in recorder.folded for f in line.frames), recorder.why()
    assert all("(deleted)" not in str(s.labels) for s in recorder.pprof.samples)


def test_20_library_replaced_while_mapped(tmp_path, targets, cases):
    for name in ("liba.so", "libb.so", "libb-next.so", "dl"):
        shutil.copy(cases / name, tmp_path / name)
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        target = targets.start(tmp_path / "dl", 150, cwd=tmp_path)
        rig.wait_for(lambda: "libb.so" in Path(f"/proc/{target.pid}/maps").read_text(), "libb.so is mapped")
        (tmp_path / "libb-next.so").rename(tmp_path / "libb.so")
        target.wait(timeout=rig.PATIENCE)
    leaves = recorder.folded.leaves("dl")
    assert leaves["alpha_work"] > 0 and leaves["bravo_work"] > 0, recorder.why()
    assert not leaves["decoy"], recorder.why()
    ids = {build_id for _, build_id in mappings_of(recorder, target.pid, "bravo_work")}
    assert ids == {rig.build_id(cases / "libb.so"), rig.build_id(cases / "libb-next.so")}, recorder.why()


# ------------------------------------------------------------------------------------ 21


def test_21_one_path_two_files(tmp_path, targets, cases):
    (tmp_path / "ns1").mkdir()
    shutil.copy(cases / "deep", tmp_path / "app")
    shutil.copy(cases / "realign", tmp_path / "ns1" / "app")
    app = tmp_path / "app"
    inside = targets.start("unshare", "-m", "sh", "-c",
                           f'mount --bind "{tmp_path}/ns1/app" "{app}" && exec "{app}" 1')
    outside = targets.start(app, 10)
    rig.wait_for(lambda: Path(f"/proc/{inside.pid}/comm").read_text() == "app\n", "the inner one runs")
    rig.is_burning(inside.pid), rig.is_burning(outside.pid)
    with rig.recording(tmp_path, "-p", f"{inside.pid},{outside.pid}", "-F", HZ) as recorder:
        rig.run_for(1.5)
    assert mappings_of(recorder, inside.pid, "hot") == {(str(app), rig.build_id(cases / "realign"))}
    assert mappings_of(recorder, outside.pid, "leaf_spin") == {(str(app), rig.build_id(cases / "deep"))}
    for s in recorder.pprof.samples:
        names = set(s.names)
        if s.labels["pid"] == inside.pid:
            assert not names & {"leaf_spin", "rec"}, s.names
        else:
            assert not names & {"hot", "mid", "outer"}, s.names


@pytest.mark.parametrize("when", ["before", "during"])
def test_21_overlay_and_chroot(when, tmp_path, targets, cases):
    """A root of its own on an overlay, unmounted before names are looked up."""
    for name in ("base", "base/low", "base/up", "base/work", "base/mnt"):
        (tmp_path / name).mkdir()
    script = ('mount -t tmpfs none "$0" && cd "$0" && mkdir low up work mnt && cp "$1" low/app && '
              'mount -t overlay overlay -olowerdir=low,upperdir=up,workdir=work mnt && exec chroot mnt /app 5')

    def start():
        target = targets.start("unshare", "-m", "sh", "-c", script, tmp_path / "base", cases / "sdeep")
        rig.wait_for(lambda: Path(f"/proc/{target.pid}/comm").read_text() == "app\n", "the container's program runs")
        return target

    target = start() if when == "before" else None
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        target = target or start()
        rig.is_burning(target.pid)
        rig.run_for(0.7)
        rig.kill(target)  # with it goes the namespace and the overlay
    spent = Counter()
    for sample in recorder.pprof.samples:
        if sample.labels["pid"] == target.pid and sample.labels["comm"] == "app" and sample.user:
            spent[sample.user[0].name] += sample.values[0]
    assert spent["leaf_spin"] >= 0.95 * sum(spent.values()) > 0, (spent, recorder.why())
    # Who looks from outside sees the path from the outer root, the mapping event the inner one.
    found = mappings_of(recorder, target.pid, "leaf_spin")
    assert {build_id for _, build_id in found} == {rig.build_id(cases / "sdeep")}, found
    assert all(path.endswith("/app") for path, _ in found), found


# ------------------------------------------------------------------------------------ 25


@pytest.mark.parametrize("program", ["deep.lld", "deep.base", "npdeep", "spdeep", "sdeep"])
def test_25_address_and_offset_differ(program, tmp_path, targets, cases):
    target = targets.start(cases / program, 20)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ, outputs=("folded", "pb.gz", "otlp")) as recorder:
        rig.run_for(0.7)
    check_leaf(recorder, program, "leaf_spin")
    start, stop = rig.file_span(cases / program, "leaf_spin")
    frames = [s.user[0] for s in recorder.pprof.samples if s.user and s.user[0].name == "leaf_spin"]
    assert frames and all(start <= f.file_position < stop for f in frames), \
        [(hex(f.address), hex(f.mapping.start), hex(f.mapping.offset)) for f in frames[:5]]
    found = [loc for loc in recorder.otlp.dictionary.locations if loc["names"][:1] == ["leaf_spin"]]
    assert found
    for loc in found:
        position = loc["address"] - loc["mapping"]["start"] + loc["mapping"]["offset"]
        assert start <= position < stop, loc
        assert loc["mapping"]["attributes"]["process.executable.build_id.gnu"] == rig.build_id(cases / program)


# ------------------------------------------------------------------------------------ identity


def test_equal_build_ids_of_different_files(tmp_path, targets, cases):
    """A build-id is what its maker says it is."""
    both = [targets.start(cases / name, 5) for name in ("bid1", "bid2")]
    for target in both:
        rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", ",".join(str(t.pid) for t in both), "-F", HZ) as recorder:
        rig.run_for(1.5)
    check_leaf(recorder, "bid1", "leaf_spin", ["hot"])
    check_leaf(recorder, "bid2", "hot", ["leaf_spin"])


def test_equal_build_ids_at_one_path_in_turn(tmp_path, targets, cases):
    """The same, one after the other, at the same path: only device and inode tell them apart."""
    app = tmp_path / "app"
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        for name in ("bid1", "bid2"):
            shutil.copy(cases / name, tmp_path / "next")
            (tmp_path / "next").rename(app)
            target = targets.start(app, 5)
            rig.is_burning(target.pid)
            rig.run_for(0.7)
            rig.kill(target)
            if name == "bid1":
                first = target.pid
    for s in recorder.pprof.samples:
        if s.labels["comm"] == "app" and s.user:
            wrong = {"hot", "mid"} if s.labels["pid"] == first else {"leaf_spin", "rec"}
            assert not set(s.names) & wrong, s.names


def test_no_build_id(tmp_path, targets, cases):
    target = targets.start(cases / "bidnone", 5)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        rig.run_for(0.5)
        early = targets.start(cases / "bidnone", 5)
        rig.is_burning(early.pid)
    check_leaf(recorder, "bidnone", "leaf_spin")


@pytest.mark.parametrize("program", ["deep.noshdr", "deep.stripped"])
def test_code_without_symbols_is_module_and_offset(program, tmp_path, targets, cases):
    target = targets.start(cases / program, 5)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
        rig.run_for(0.5)
    leaves = recorder.folded.leaves(program)
    wanted = sum(ns for name, ns in leaves.items() if name.startswith(f"{program}+0x"))
    assert wanted >= 0.95 * sum(ns for name, ns in leaves.items() if name) > 0, recorder.why()
    start, stop = rig.file_span(cases / "deep.g", "leaf_spin")
    positions = [s.user[0].file_position for s in recorder.pprof.samples if s.user]
    assert positions and sum(start <= p < stop for p in positions) >= 0.95 * len(positions)
    with contextlib.suppress(KeyError):
        assert recorder.summary["stacks"]["unnamed"]["no_symbol"] > 0 or \
            recorder.summary["stacks"]["unnamed"]["file_invalid"] > 0
