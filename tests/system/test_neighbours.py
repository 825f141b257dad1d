# SPDX-License-Identifier: Apache-2.0
"""Beside other profilers: both work, neither spoils the other, and doctor mentions them."""

import json
import os
import subprocess

import rig


def test_beside_perf(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 600)
    # No build-ids and no symbols: perf 6.1 dies of unusual build-ids that some program may have.
    perf = targets.start("perf", "record", "-q", "-B", "-N", "--no-bpf-event", "-e", "cpu-clock", "-F", 99, "-a", "-g",
                         "-o", tmp_path / "perf.data", "--", "sleep", "600")
    rig.wait_for(lambda: any("perf_event" in os.readlink(f"/proc/{perf.pid}/fd/{fd}")
                             for fd in os.listdir(f"/proc/{perf.pid}/fd")), "perf has its events open")
    with rig.recording(tmp_path, "-a", "-F", 99) as recorder:
        rig.run_for(2)
    perf.send_signal(rig.signal.SIGINT)
    perf.wait(timeout=rig.PATIENCE)
    assert recorder.pprof.by("pid")[target.pid] >= 0.5 * rig.SECOND, recorder.why()
    expected = recorder.summary["duration_ns"] / recorder.period_ns * recorder.summary["cpus"]
    assert recorder.kind["ticks"] >= 0.97 * expected, recorder.why()
    seen = subprocess.run(["perf", "script", "-i", tmp_path / "perf.data", "-F", "comm,time", "--comms", "split"],
                          capture_output=True, text=True, check=False)
    assert seen.stdout.count("split") > 50, seen


def test_beside_bpftrace(tmp_path, targets, workloads):
    """Its profile probe is a perf_event program on the same clock."""
    target = targets.start(workloads / "split", 600)
    script = "profile:hz:99 { @[comm] = count(); } interval:s:600 { exit(); }"
    tracer = targets.start("bpftrace", "-f", "json", "-e", script)
    assert tracer.stdout.readline()
    with rig.recording(tmp_path, "-a", "-F", 99) as recorder:
        rig.run_for(2)
    tracer.send_signal(rig.signal.SIGINT)
    out, _ = tracer.communicate(timeout=rig.PATIENCE)
    counted = next(json.loads(line) for line in out.splitlines() if b'"map"' in line)["data"]["@"]
    assert counted["split"] > 50, counted
    assert recorder.pprof.by("pid")[target.pid] >= 0.5 * rig.SECOND, recorder.why()


def test_beside_another_flyball(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with rig.recording(tmp_path / "one", "-a", "-F", 99) as one:
        with rig.recording(tmp_path / "two", "-a", "-F", 99) as two:
            burned = rig.cpu_seconds(target.pid)
            rig.run_for(2)
            burned = (rig.cpu_seconds(target.pid) - burned) * rig.SECOND
    for recorder in (one, two):
        assert recorder.pprof.by("pid")[target.pid] >= 0.85 * burned, (burned, recorder.why())


def test_doctor_mentions_neighbours(tmp_path, targets):
    plain = rig.flyball("doctor", "--json")
    assert plain.returncode == 0
    with rig.recording(tmp_path, "-a"):
        beside = rig.flyball("doctor", "--json")
    found = {c["name"]: c for c in json.loads(beside.stdout)["checks"]}["other_profilers"]
    assert found["level"] == "note" and "fly_" in found["text"], found
    assert beside.returncode == 0


def test_doctor_is_one_sentence_each():
    done = rig.flyball("doctor")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) > 8 and lines[-1] == "flyball can run here."
    checks = json.loads(rig.flyball("doctor", "--json").stdout)["checks"]
    names = [c["name"] for c in checks]
    assert len(set(names)) == len(names)
    assert {"version", "btf", "capabilities", "lockdown", "perf_event_paranoid", "tracefs", "user_namespace",
            "pid_namespace", "time_namespace", "isolated_cpus", "other_profilers"} <= set(names)
    for check in checks:
        assert check["text"].strip() and "\n" not in check["text"] and "libbpf:" not in check["text"], check
