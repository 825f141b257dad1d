# SPDX-License-Identifier: Apache-2.0
"""Beside other profilers: both work, neither spoils the other, and doctor mentions them."""

import json
import struct

import rig


def perf_samples(path):
    """Samples in a perf.data file. perf itself would die of unusual build-ids that some program may have."""
    data = path.read_bytes()
    start, size = struct.unpack_from("<QQ", data, 40)
    assert size, f"{path} was not completed"
    count, at = 0, start
    while at < start + size:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        count += kind == 9  # PERF_RECORD_SAMPLE
        at += length
    return count


def burn_for(seconds, target):
    """CPU time, in ns, that the target spent in these seconds."""
    begin = rig.cpu_seconds(target.pid)
    rig.run_for(seconds)
    return (rig.cpu_seconds(target.pid) - begin) * rig.SECOND


def test_beside_perf(tmp_path, targets, workloads):
    target, *_ = rig.burn_every_cpu(targets, workloads / "split", 600)
    perf = targets.start("perf", "record", "-q", "-B", "-N", "--no-bpf-event", "-e", "cpu-clock", "-F", 99, "-a", "-g",
                         "-o", tmp_path / "perf.data", "--", "sleep", "600")
    rig.wait_for(lambda: rig.has_perf_events(perf.pid), "perf has its events open")
    with rig.recording(tmp_path, "-a", "-F", 99) as recorder:
        burned = burn_for(2, target)
    perf.send_signal(rig.signal.SIGINT)
    perf.wait(timeout=rig.PATIENCE)
    assert recorder.pprof.by("pid")[target.pid] >= 0.8 * burned, (burned, recorder.why())
    expected = recorder.summary["duration_ns"] / recorder.period_ns * recorder.summary["cpus"]
    assert recorder.kind["ticks"] >= 0.97 * expected, recorder.why()
    assert perf_samples(tmp_path / "perf.data") > 50


def test_beside_bpftrace(tmp_path, targets, workloads):
    """Its profile probe is a perf_event program on the same clock."""
    target = targets.start(workloads / "split", 600)
    script = "profile:hz:99 { @[comm] = count(); } interval:s:600 { exit(); }"
    tracer = targets.start("bpftrace", "-f", "json", "-e", script)
    assert tracer.stdout.readline()
    with rig.recording(tmp_path, "-a", "-F", 99) as recorder:
        burned = burn_for(2, target)
    tracer.send_signal(rig.signal.SIGINT)
    out, _ = tracer.communicate(timeout=rig.PATIENCE)
    counted = next(json.loads(line) for line in out.splitlines() if b'"map"' in line)["data"]["@"]
    assert counted["split"] > 0.5 * burned / rig.SECOND * 99, counted
    assert recorder.pprof.by("pid")[target.pid] >= 0.8 * burned, (burned, recorder.why())


def test_beside_another_flyball(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with rig.recording(tmp_path / "one", "-a", "-F", 99) as one:
        with rig.recording(tmp_path / "two", "-a", "-F", 99) as two:
            burned = burn_for(2, target)
    for recorder in (one, two):
        assert recorder.pprof.by("pid")[target.pid] >= 0.8 * burned, (burned, recorder.why())


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
