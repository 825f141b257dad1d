# SPDX-License-Identifier: Apache-2.0
"""Field cases of kind `sym`: kernel addresses that are hidden, 31; C++ names that explode, 34."""

import re
from pathlib import Path

import pytest
import rig

HZ = 499

# ------------------------------------------------------------------------------------ 31

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
