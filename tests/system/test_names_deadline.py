# SPDX-License-Identifier: Apache-2.0
"""File systems that never answer, more of them than there are helpers to lose: the recording takes every
sample, and ends within the time that `record --help` promises."""

import contextlib
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import rig

STALLED = 5  # one more than stuck helpers are allowed
WRITING_S = 1.5  # for files and processes, on a machine that others use as well


def promised_seconds():
    told = rig.flyball("record", "--help").stdout.decode()
    seconds = int(re.search(r"are\s+waited for at most\s+(\d+) s", told)[1])
    manual = (Path(rig.__file__).parents[2] / "docs" / "symbols.md").read_text()
    assert f"waited for at most {seconds} s" in manual
    return seconds


@pytest.fixture
def stalled(request, tmp_path, targets, workloads, cases):
    """Processes whose files will not be opened, or not be read, any more; each on a mount of its own."""
    processes = []
    with contextlib.ExitStack() as stack:
        servers = []
        for i in range(STALLED):
            mount = tmp_path / f"mnt{i}"
            mount.mkdir()
            server = targets.start(workloads / "stallfs", mount, cases / "deep", request.param)
            stack.callback(subprocess.run, ["umount", "-l", mount], check=False, capture_output=True)
            stack.callback(server.wait)
            stack.callback(server.kill)
            assert server.stdout.readline() == b"ready\n"
            processes.append(targets.start(mount / "stalled", 5))
            servers.append(server)
        for process, server in zip(processes, servers):
            rig.wait_for(lambda p=process: rig.is_burning(p.pid), "the target runs")
            server.send_signal(signal.SIGUSR1)
            assert server.stdout.readline() == b"stalled\n"
        yield processes
        for process in processes:
            rig.kill(process)


@pytest.mark.parametrize("stalled", ["open", "read"], indirect=True)
def test_the_end_keeps_to_its_deadline(stalled, tmp_path, targets, cases):
    pids = ",".join(str(process.pid) for process in stalled)
    with rig.recording(tmp_path, "-p", pids, "-F", 199) as recorder:
        rig.run_for(1)
        asked = time.monotonic()
        recorder.stop().finish()
        took = time.monotonic() - asked
    assert took <= promised_seconds() + WRITING_S, f"{took:.1f} s"
    # Sampling went on all the while: all ticks of busy CPUs are there, none was lost on the way.
    kind = recorder.kind
    assert recorder.dropped == 0 and kind["delivered"] == kind["taken"] > 0, recorder.why()
    seconds = recorder.summary["duration_ns"] / rig.SECOND
    expected = seconds * 199 * min(STALLED, recorder.summary["cpus"])
    assert kind["ticks"] >= 0.8 * expected, recorder.why()
    # By address, and with a reason.
    leaves = recorder.folded.leaves("stalled")
    assert leaves and all(leaf.startswith("stalled+0x") for leaf in leaves if leaf), recorder.why()
    unnamed = recorder.summary["stacks"]["unnamed"]
    assert sum(unnamed[reason] for reason in ("open_timeout", "read_timeout", "helper_limit", "no_time")) > 0, unnamed
