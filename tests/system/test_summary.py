# SPDX-License-Identifier: Apache-2.0
"""What a recording says at its end: the JSON object of --json, the text for people, and one total in all files."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import rig

SCHEMA = rig.ROOT / "docs" / "record.schema.json"
ALL = ("folded", "pb.gz", "otlp", "json", "html")


@pytest.fixture(scope="module")
def schema():
    text = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(text)
    return jsonschema.Draft202012Validator(text)


def test_summary_follows_its_schema(tmp_path, targets, workloads, schema):
    targets.start(workloads / "split", 600)
    for name, args in (("all", ["-a", "-d", 1]), ("command", ["--", "sh", "-c", "exit 0"]),
                       ("threads", ["-a", "-d", "500ms", "--per-thread", "--no-symbols", "--no-kernel"])):
        (tmp_path / name).mkdir()
        recorder = rig.Recorder(tmp_path / name, *args, outputs=ALL)
        try:
            recorder.finish()
        finally:
            recorder.give_up()
        errors = sorted(schema.iter_errors(recorder.summary), key=str)
        assert not errors, [f"{'/'.join(map(str, e.path))}: {e.message}" for e in errors]
        assert len(recorder.out_text().splitlines()) == 1, "more than the one object on stdout"
        assert recorder.summary["files"] == [str(p) for p in recorder.outputs.values()]


def test_schema_refuses_what_is_wrong(schema):
    """The schema has teeth: an empty object, a missing key and a string for a number do not pass."""
    assert list(schema.iter_errors({}))
    required = set(schema.schema["required"])
    assert required >= {"duration_ns", "cpus", "hz", "command", "exit_status", "kinds", "stacks", "cost",
                        "kernel_memory", "files"}
    assert list(schema.iter_errors({key: "text" for key in required}))


def test_numbers_of_the_summary_hang_together(tmp_path, targets, workloads):
    targets.start(workloads / "split", 600)
    with rig.recording(tmp_path, "-a", "-F", 199, outputs=("folded", "pb.gz", "otlp")) as recorder:
        rig.run_for(2)
    s, k = recorder.summary, recorder.kind
    assert s["hz"] == 199 and s["cpus"] == rig.os.cpu_count() and s["command"] is None and s["exit_status"] is None
    assert abs(s["duration_ns"] - 2 * rig.SECOND) < 0.5 * rig.SECOND
    assert k["weight_ns"] == k["delivered"] * recorder.period_ns
    assert s["stacks"]["complete"] + sum(s["stacks"]["cut"].values()) >= k["delivered"]
    assert s["stacks"]["complete"] <= k["delivered"]
    cost = s["cost"]
    assert 0 <= cost["own_user_ns"] < 2 * rig.SECOND and 0 < cost["own_system_ns"] < 2 * rig.SECOND
    assert 0 < cost["bpf_run_ns"] < 0.1 * rig.SECOND
    if cost["interrupt_ns"] is None:
        assert cost["tick"] is None and cost["unknown"]["interrupt_ns"]
    else:
        assert cost["interrupt_ns"] == k["ticks"] * cost["tick"]["ns"] > 0 and cost["unknown"] == {}
    if not rig.IS_ASAN:
        assert 0 < cost["peak_anon_bytes"] <= 40 << 20
    jobs, tables = s["helpers"]["reader_jobs"], s["unwinding"]
    once = tables["files"] + tables["shared_total"] + tables["expired_total"]
    assert 0 < jobs["table"]["jobs"] <= once, "a table was made twice"
    assert all(job["longest_ns"] <= job["busy_ns"] for job in jobs.values())
    assert jobs["table"]["jobs"] <= jobs["table"]["busy_ns"] < 2 * s["duration_ns"]


def test_cost_of_interrupts_is_what_was_calibrated(tmp_path, targets, workloads, schema):
    """Without a calibration null, with the reason; with one, ticks times its figure."""
    kept = tmp_path / "kept" / "calibration"
    targets.start(workloads / "split", 600)
    with rig.recording(tmp_path, "-a", "--calibration", kept, outputs=("folded",)) as recorder:
        rig.run_for(0.5)
    cost = recorder.summary["cost"]
    assert cost["interrupt_ns"] is None and cost["tick"] is None
    assert "flyball doctor --calibrate" in cost["unknown"]["interrupt_ns"]

    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    kept.parent.mkdir()
    kept.write_text(f"tick_ns=48000\nlow_ns=47000\nhigh_ns=49500\nseen_low_ns=48000\nseen_high_ns=50000\npairs=40\ncpu=0\nmeasured_s=1700000000\n"
                    f"machine={model}, Linux {rig.os.uname().release}\n")
    kept.chmod(0o644)
    (tmp_path / "b").mkdir()
    with rig.recording(tmp_path / "b", "-a", "--calibration", kept, outputs=("folded",)) as recorder:
        rig.run_for(0.5)
    cost, ticks = recorder.summary["cost"], recorder.kind["ticks"]
    assert not list(schema.iter_errors(recorder.summary))
    assert cost["tick"] == {"ns": 48000, "low_ns": 47000, "high_ns": 49500, "pairs": 40, "seen_low_ns": 48000,
                            "seen_high_ns": 50000, "is_trusted": True} and cost["unknown"] == {}
    assert cost["interrupt_ns"] == ticks * 48000 > 0

    assert "costs 48.00 us" in rig.flyball("doctor", "--calibration", kept).stdout.decode()
    kept.write_text(kept.read_text().replace("seen_low_ns=48000", "seen_low_ns=22000"))
    assert "22.00 to 50.00 us were seen" in rig.flyball("doctor", "--calibration", kept).stdout.decode()
    done = rig.flyball("record", "-a", "-d", "1", "--budget", "1", "--calibration", kept, "--no-symbols", "--json",
                       "-o", tmp_path / "c.folded")
    assert b"not to be trusted" in done.stderr
    assert json.loads(done.stdout)["cost"]["tick"]["is_trusted"] is False
    kept.write_text(kept.read_text().replace("Linux", "Minix"))
    assert "another CPU or kernel" in rig.flyball("doctor", "--calibration", kept).stdout.decode()


def test_doctor_calibrates_or_says_why_not(tmp_path):
    kept = tmp_path / "calibration"
    done = rig.flyball("doctor", "--calibrate", "--calibration", kept, "--json")
    known = json.loads(done.stdout)
    if known["calibration"] is None:  # too much else runs: said, not guessed
        assert done.returncode == 4 and not kept.exists()
        assert "try again" in known["calibration_unknown"] and known["calibration_unknown"] in done.stderr.decode()
        return
    assert done.returncode == 0 and known["calibration_unknown"] is None
    tick = known["calibration"]
    assert 200 < tick["low_ns"] <= tick["tick_ns"] <= tick["high_ns"] < 10**6
    again = json.loads(rig.flyball("doctor", "--calibration", kept, "--json").stdout)
    assert again["calibration"] == tick


def test_totals_are_one_in_all_files(tmp_path, targets, workloads, cases):
    """Folded, pprof and OTLP in rig.Recorder; here the JSON too (tests/ui adds the page up)."""
    targets.start(workloads / "split", "-t", 600)
    targets.start(cases / "churn", 600, cases / "briefs")
    with rig.recording(tmp_path, "-a", "-F", 199, outputs=ALL) as recorder:
        rig.run_for(2)
    request = json.loads(recorder.outputs["json"].read_text())
    total = sum(int(p["period"]) * sum(len(s["timestampsUnixNano"]) for s in p["samples"])
                for r in request["resourceProfiles"] for sc in r["scopeProfiles"] for p in sc["profiles"])
    assert total == recorder.kind["weight_ns"]


def test_text_summary(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    recorder = rig.Recorder(tmp_path, "-p", target.pid, "-d", 1, json_summary=False, outputs=("folded",))
    try:
        recorder.finish()
    finally:
        recorder.give_up()
    text = recorder.error_text()
    assert recorder.out_text() == ""
    numbers = re.search(r"(\d+) taken = (\d+) delivered \+ (\d+) dropped", text)
    assert numbers and int(numbers[1]) == int(numbers[2]) + int(numbers[3]) > 0, text
    ticks = re.search(r"(\d+) = (\d+) idle \+ (\d+) filtered \+ (\d+) taken", text)
    assert ticks and int(ticks[1]) == sum(int(ticks[i]) for i in (2, 3, 4)), text
    for word in ("work_a", "work_b", "by self", "by total", "CPU", "BPF", "interrupts", "planned", "measured", "out.folded"):
        assert word in text, (word, text)
    # Nobody's terminal: no progress, no escape sequence.
    assert "\x1b" not in text and "\r" not in text


def test_progress_on_a_terminal(tmp_path, targets, workloads):
    """With stderr on a terminal a line tells how it goes, and is taken away at the end."""
    target = targets.start(workloads / "split", 600)
    main, side = rig.os.openpty()
    done = rig.subprocess.Popen([rig.FLYBALL, "record", "-p", str(target.pid), "-d", "2", "-o", tmp_path / "x.folded"],
                                stderr=side, stdout=rig.subprocess.DEVNULL, stdin=rig.subprocess.DEVNULL)
    rig.os.close(side)
    shown = b""
    while True:
        try:
            piece = rig.os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    rig.os.close(main)
    assert done.wait(timeout=rig.PATIENCE) == 0
    assert b"recording" in shown and b"samples" in shown, shown


def test_timestamps_lie_in_the_recording(tmp_path, workloads):
    before = rig.time.time_ns()
    recorder = rig.record_command(tmp_path, [workloads / "split", 1], outputs=("folded", "pb.gz", "otlp"))
    after = rig.time.time_ns()
    for profile in recorder.otlp:
        assert before - rig.SECOND <= profile.time_ns and profile.time_ns + profile.duration_ns <= after + rig.SECOND
        for sample in profile.samples:
            for t in sample.times:
                assert profile.time_ns <= t < profile.time_ns + profile.duration_ns
