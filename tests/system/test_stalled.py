# SPDX-License-Identifier: Apache-2.0
"""Programs that run from a file system which stops answering: one deadline, one reason, nothing else."""

import json
import os
import signal
import subprocess
import time

import pytest
import rig


@pytest.fixture
def stalled(request, tmp_path, targets, workloads, cases):
    """A process whose file will not be opened, or not be read, any more."""
    mount = tmp_path / "mnt"
    mount.mkdir()
    server = targets.start(workloads / "stallfs", mount, cases / "deep", request.param)
    try:
        assert server.stdout.readline() == b"ready\n"
        target = targets.start(mount / "stalled", 5)
        rig.is_burning(target.pid)
        server.send_signal(signal.SIGUSR1)
        assert server.stdout.readline() == b"stalled\n"
        yield request.param, target, server
        rig.kill(target)
    finally:
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


@pytest.mark.parametrize("stalled", ["open", "read"], indirect=True)
def test_stalled_file_costs_a_deadline_and_names(stalled, tmp_path, targets, cases):
    how, target, server = stalled
    other = targets.start(cases / "deep", 5)
    rig.is_burning(other.pid)
    with rig.recording(tmp_path, "-p", f"{target.pid},{other.pid}", "-F", 199) as recorder:
        helpers = set(rig.descendants(recorder.main))
        rig.run_for(2)
        helpers |= set(rig.descendants(recorder.main))
        asked = time.monotonic()
        recorder.stop().finish()
        took = time.monotonic() - asked
    assert took < 8, f"{took:.1f} s to end"
    # Every sample is there; those of the stalled file have no name, for a reason that says so.
    leaves = recorder.folded.leaves("stalled")
    assert leaves and all(leaf.startswith("stalled+0x") for leaf in leaves if leaf), recorder.why()
    unnamed = recorder.summary["stacks"]["unnamed"]
    assert unnamed[f"{how}_timeout"] > 0, unnamed
    # The other program waited in line behind it, and lost nothing.
    leaves = recorder.folded.leaves("deep")
    assert leaves["leaf_spin"] >= 0.95 * sum(ns for leaf, ns in leaves.items() if leaf) > 0, recorder.why()
    assert unnamed["mapping_unknown"] == 0, recorder.why()
    # What hangs in the kernel is let go with its server, and not before: it must not be ours to wait for.
    server.kill()
    server.wait()
    rig.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in helpers), "stuck helpers are gone")


@pytest.mark.parametrize("stalled", ["open"], indirect=True)
def test_stalled_file_found_by_the_whole_machine_scan(stalled, tmp_path, targets, cases):
    """-a, and programs that start meanwhile get their names."""
    _, target, _ = stalled
    with rig.recording(tmp_path, "-a", "-F", 199) as recorder:
        rig.run_for(0.5)
        other = targets.start(cases / "npdeep", 5)
        rig.is_burning(other.pid)
        rig.run_for(1.5)
    assert recorder.pprof.by("pid")[target.pid] > 0
    leaves = recorder.folded.leaves("npdeep")
    assert leaves["leaf_spin"] >= 0.9 * sum(ns for leaf, ns in leaves.items() if leaf) > 0, recorder.why()


@pytest.mark.parametrize("stalled", ["open"], indirect=True)
def test_plan_waits_for_a_stalled_file_no_longer_than_its_deadline(stalled):
    asked = time.monotonic()
    done = rig.flyball("plan", "--json")
    assert time.monotonic() - asked < 8 and done.returncode == 0, done.stderr
    running = json.loads(done.stdout)["running"]
    assert not running["is_complete"] and running["processes"] > 0, running
