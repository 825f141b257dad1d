# SPDX-License-Identifier: Apache-2.0
"""Field cases of kind `sym`: kernel addresses that are hidden, 31; C++ names that explode, 34."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
import rig

HZ = 499

# ------------------------------------------------------------------------------------ 31

KALLSYMS = Path("/proc/kallsyms")
KPTR = Path("/proc/sys/kernel/kptr_restrict")


@pytest.fixture
def kptr():
    """Sets kernel.kptr_restrict; what it was is put back."""
    before = KPTR.read_text()
    yield lambda value: KPTR.write_text(f"{value}\n")
    KPTR.write_text(before)


def kernel_frames(recorder, comm="dd"):
    frames = {f.removesuffix("_[k]") for line in recorder.folded.of(comm) for f in line.kernel}
    assert len(frames) > 3, recorder.why()
    return frames


def copier(targets):
    target = targets.start("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "status=none")
    rig.is_burning(target.pid)
    return target


def test_31_hidden_addresses(tmp_path, targets, kptr):
    """Frames by address, each its own, and one sentence."""
    kptr(2)
    target = copier(targets)
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
        rig.run_for(1)
    frames = kernel_frames(recorder)
    assert all(re.fullmatch(r"\[kernel\]\+0x[0-9a-f]{16}", f) for f in frames), frames
    assert recorder.summary["stacks"]["unnamed"]["kernel_hidden"] > 0
    told = [line for line in recorder.error_text().splitlines() if "kptr_restrict" in line]
    assert len(told) == 1, recorder.error_text()


def test_31_shown_while_it_records(tmp_path, targets, kptr):
    """What was hidden at the start has names when it is shown before the end."""
    kptr(2)
    target = copier(targets)
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
        rig.run_for(0.5)
        kptr(0)
        rig.run_for(0.5)
    frames = kernel_frames(recorder)
    named = {f for f in frames if not f.startswith("[kernel]+0x")}
    assert len(named) >= 0.9 * len(frames), recorder.why()
    assert recorder.summary["stacks"]["unnamed"]["kernel_hidden"] == 0
    assert "kptr_restrict" not in recorder.error_text()


# ------------------------------------------------------------------------------------ BPF programs


def bpf_names(recorder, comm):
    """Of the BPF programs that the kernel ran for a command, by their share of that time."""
    leaves = Counter()
    for line in recorder.folded.of(comm):
        if any("bpf_test_run" in f for f in line.kernel):
            leaves[line.kernel[-1].removesuffix("_[k]")] += line.value
    ns = sum(leaves.values())
    assert ns > 0, recorder.why()
    names = Counter()
    for leaf, value in leaves.items():
        found = re.fullmatch(r"bpf_prog_[0-9a-f]{16}_(\w+)", leaf)
        names[found[1] if found else "other"] += value / ns
    return names


@pytest.mark.parametrize("when", ["all the time", "come and gone", "gone"])
def test_bpf_programs_have_names(when, tmp_path, targets, workloads):
    """Also those that /proc/kallsyms does not know any more at the end."""
    if when == "come and gone":
        recorder = rig.record_command(tmp_path, [workloads / "bpfspin", 1], "-F", HZ)
    else:
        target = targets.start(workloads / "bpfspin", 60)
        rig.is_burning(target.pid)
        with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
            rig.run_for(0.7)
            if when == "gone":
                rig.kill(target)
                rig.wait_for(lambda: "_bpfspin\t[bpf]" not in KALLSYMS.read_text(), "the program is gone")
    assert bpf_names(recorder, "bpfspin")["bpfspin"] > 0.8, recorder.why()


def test_bpf_programs_at_one_address(tmp_path, targets, workloads):
    """Text of a program that has gone is used again: each sample has the name of its time. Also beside another
    recorder, which makes the kernel's records longer."""

    def loaded():
        return re.findall(r"^(\w+) t bpf_prog_\w+_(spin\d+)\t\[bpf\]$", KALLSYMS.read_text(), re.MULTILINE)

    def start(name):
        shutil.copy(workloads / "bpfspin", tmp_path / name)
        target = targets.start(tmp_path / name, 60)
        rig.wait_for(lambda: rig.cpu_seconds(target.pid) > 0.3, "it has run for some time")
        [(address, found)] = loaded()
        assert found == name
        return target, address

    places = []
    target, address = start("spin0")
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        rig.wait_for(lambda: rig.cpu_seconds(target.pid) > 0.6, "it has been sampled")
        targets.start(rig.FLYBALL, "record", "-a", "-F", 49, "--no-symbols", "-o", tmp_path / "other.folded")
        rig.wait_for(lambda: len(re.findall(r"_fly_(?:sample|unwind)\t", KALLSYMS.read_text())) > 1, "another recorder runs")
        for n in range(1, 20):
            rig.kill(target)
            rig.wait_for(lambda: not loaded(), "it is gone")
            places.append(address)
            if len(places) > 2 and len(set(places)) < len(places):
                break
            target, address = start(f"spin{n}")
    assert len(set(places)) < len(places), f"no address was used twice: {places}"
    programs = {f"spin{n}" for n in range(len(places))}
    for name in programs:
        names = bpf_names(recorder, name)
        assert names[name] > 0.7 and not any(names[other] for other in programs - {name}), f"{names}\n{recorder.why()}"


# ------------------------------------------------------------------------------------ 34


def name_of(recorder, program):
    leaves = recorder.folded.leaves(program)
    name, ns = max(leaves.items(), key=lambda item: item[1])
    assert ns >= 0.9 * sum(leaves.values()), recorder.why()
    return name


def test_34_names_that_explode(tmp_path, targets, cases):
    """138 MB of text, or never an end of it: cut with a mark, within memory and time."""
    plain = targets.start(cases / "deep", 5)
    rig.is_burning(plain.pid)
    (tmp_path / "plain").mkdir()
    with rig.recording(tmp_path / "plain", "-p", plain.pid, "-F", HZ) as without:
        rig.run_for(1)
    rig.kill(plain)
    programs = ["tmpl12", "tmpl18", "tmpl22", "tmpl30"]
    started = [targets.start(cases / name, 5) for name in programs]
    for target in started:
        rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", ",".join(str(t.pid) for t in started), "-F", HZ) as recorder:
        rig.run_for(1)
    for program in programs:
        name = name_of(recorder, program)
        assert name.startswith("void spin_tmpl<std::pair<std::pair<") and name.endswith("…"), name
        assert len(name.encode()) <= 1023
    assert recorder.summary["helpers"]["reader_restarts"] == 0
    assert recorder.summary["duration_ns"] < without.summary["duration_ns"] + rig.SECOND, recorder.why()
    grown = recorder.summary["cost"]["peak_anon_bytes"] - without.summary["cost"]["peak_anon_bytes"]
    assert rig.IS_ASAN or grown < 10 << 20, f"{grown} bytes more than for a program with plain names"
