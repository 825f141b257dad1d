# SPDX-License-Identifier: Apache-2.0
"""`record --budget` and `--tiers`: the cost is held, the weights stay exact, a stalled loop is told."""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import time
from math import sqrt
from pathlib import Path

import pytest
import rig
import test_accuracy

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
SECONDS = 60 if rig.LONG else 5


@contextlib.contextmanager
def stopped(tid):
    """One thread stands still, all others of its process go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    assert libc.ptrace(PTRACE_SEIZE, tid, None, None) == 0, os.strerror(ctypes.get_errno())
    assert libc.ptrace(PTRACE_INTERRUPT, tid, None, None) == 0, os.strerror(ctypes.get_errno())
    _, status = os.waitpid(tid, WALL)
    assert os.WIFSTOPPED(status)
    yield
    assert libc.ptrace(PTRACE_DETACH, tid, None, None) == 0, os.strerror(ctypes.get_errno())


def check_events(governor):
    assert governor["events_total"] == len(governor["events"]) > 0, governor
    times = [e["since_start_ns"] for e in governor["events"]]
    assert times == sorted(times)
    for event in governor["events"]:
        assert event["cause"] and event["reason"] and "\n" not in event["reason"]
        assert event["before"].keys() == event["after"].keys()
    assert sum(governor["state_ns"].values()) == sum(governor["tier_ns"])


def test_without_a_budget_nothing_is_governed(tmp_path, targets, workloads):
    targets.start(workloads / "split", "-t", 600)
    with rig.recording(tmp_path, "-a") as recorder:
        rig.run_for(0.3)
    assert recorder.summary["governor"] is None
    assert recorder.kind["dropped"]["suppressed"] == 0


def test_budget_is_held_and_weights_stay_exact(tmp_path, targets, workloads):
    """4999 Hz is more than 1 % pays for: the rate falls, and every sample weighs what it stands for."""
    rig.burn_every_cpu(targets, workloads / "split", "-t", 600)
    with rig.recording(tmp_path, "-a", "-F", 4999, "--budget", 1, "--no-symbols") as recorder:
        rig.run_for(SECONDS)
    governor = recorder.summary["governor"]
    check_events(governor)
    assert governor["over_ns"] <= 2 * rig.SECOND, recorder.why()
    assert governor["events"][-1]["after"]["period_ns"] > rig.SECOND // 4999, recorder.why()


def test_tiers_come_at_once(tmp_path, targets, workloads):
    """All CPUs are busy: the last tier, 5 Hz and 32 frames, within 1.5 s; the weights are whole all the same."""
    rig.burn_every_cpu(targets, workloads / "split", "-t", 600)
    with rig.recording(tmp_path, "-a", "-F", 99, "--tiers", "--no-symbols") as recorder:
        rig.run_for(4)
    governor = recorder.summary["governor"]
    check_events(governor)
    event = next(e for e in governor["events"] if e["after"]["tier"] == 2)
    assert event["since_start_ns"] <= 1.5 * rig.SECOND, governor
    assert event["cause"] == "node_load" and "5 Hz" in event["reason"]
    assert event["after"]["unwinder"] == "frame_pointers" and event["after"]["depth"] <= 32
    assert event["after"]["period_ns"] >= rig.SECOND / 5.5
    weight = recorder.kind["weight_ns"] / recorder.summary["duration_ns"] / os.cpu_count()
    assert 0.85 <= weight <= 1.15, recorder.why()


def test_stalled_loop_is_suppressed_and_comes_back(tmp_path, targets, workloads):
    """The main thread stands still for 3 s: within 1.2 s nothing is sampled any more, until it is back."""
    rig.burn_every_cpu(targets, workloads / "split", "-t", 600)
    with rig.recording(tmp_path, "-a", "-F", 19, "--budget", 5, "--no-symbols") as recorder:
        rig.run_for(0.5)
        begin = time.monotonic()
        with stopped(recorder.main):
            rig.run_for(3)
        away = time.monotonic() - begin
        rig.run_for(1.5)
    governor = recorder.summary["governor"]
    assert governor["stalls"] == 1, governor
    suppressed = recorder.kind["dropped"]["suppressed"] / 19 / os.cpu_count()
    assert away - 1.2 - 0.2 <= suppressed <= away - 0.9 + 0.2, (away, suppressed, recorder.why())
    assert "loop_stall" in [e["cause"] for e in governor["events"]], governor
    # What came after, and what was taken before, is there.
    assert recorder.kind["delivered"] > 0
    assert governor["events"][-1]["after"]["suppressed_ppm"] == 0, governor


def held_objects(pid):
    """(what, id) of the BPF objects that a process holds."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError):
            info = Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
            found |= set(re.findall(r"^(prog|map|link)_id:\s+(\d+)", info, re.M))
    return found


def listed_objects():
    found = set()
    for what in ("prog", "map", "link"):
        done = subprocess.run(["bpftool", "-j", what, "list"], capture_output=True, check=True)
        found |= {(what, str(o["id"])) for o in json.loads(done.stdout)}
    return found


def test_kill_9_leaves_nothing(tmp_path, targets, workloads):
    """The off switch that always works: 2 s later the kernel has no object of ours, and no helper runs."""
    rig.burn_every_cpu(targets, workloads / "split", "-t", 600)
    with rig.recording(tmp_path, "-a", "-F", 999, "--budget", 5) as recorder:
        rig.run_for(0.5)
        held, helpers = held_objects(recorder.main), rig.descendants(recorder.main)
        assert {what for what, _ in held} == {"prog", "map", "link"} and len(helpers) >= 2
        assert held <= listed_objects()
        os.kill(recorder.main, signal.SIGKILL)
        assert recorder.finish(status=None).status == -signal.SIGKILL
        rig.wait_for(lambda: not held & listed_objects(), "no program, map or link is left", seconds=2)
        rig.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in helpers), "no helper is left", seconds=2)


def test_stopped_process_loses_time_and_nothing_else(tmp_path, targets, workloads):
    """SIGSTOP of all of flyball, the watchdog with it: what was lost is counted, and it goes on."""
    rig.burn_every_cpu(targets, workloads / "split", "-t", 600)
    with rig.recording(tmp_path, "-a", "-F", 199, "--budget", 5, "--ring", "16K", "--no-symbols") as recorder:
        rig.run_for(0.3)
        recorder.stop(signal.SIGSTOP)
        rig.run_for(4)
        recorder.stop(signal.SIGCONT)
        rig.run_for(0.7)
    governor = recorder.summary["governor"]
    assert governor["stalls"] == 1 and recorder.kind["dropped"]["ring_full"] > 0, recorder.why()


@pytest.mark.parametrize("text", ["0", "-1", "5.1", "x", "1x", ""])
def test_budgets_that_are_none(text):
    done = rig.flyball("record", "-a", f"--budget={text}", "-d", "1")
    assert done.returncode == 2 and b"--budget" in done.stderr and len(done.stderr.splitlines()) <= 2, done.stderr


def test_weights_sum_to_cpu_time_through_changes_of_the_rate(tmp_path, workloads):
    """Σ weights against getrusage: 2 %, or three of the longest periods there were."""
    recorder = rig.record_command(tmp_path, [workloads / "split", "-t", 4], "-F", 4999, "--budget", 2, "--no-symbols")
    governor = recorder.summary["governor"]
    cpu_ns = test_accuracy.rusage_ns(json.loads(recorder.command_out))
    assert governor["changes"] >= 2 and recorder.dropped == 0, recorder.why()
    periods = [e["after"]["period_ns"] for e in governor["events"]]
    had = min(1, cpu_ns / recorder.summary["duration_ns"])
    chance = 4 * sqrt(cpu_ns / max(periods) * (1 - had)) * max(periods)
    bound = max(0.02 * cpu_ns, 3 * max(periods), chance)
    assert abs(recorder.kind["weight_ns"] - cpu_ns) <= bound, (cpu_ns, bound, recorder.why())
