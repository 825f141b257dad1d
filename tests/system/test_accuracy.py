# SPDX-License-Identifier: Apache-2.0
"""Programs with a known split of CPU time: every share, and the sum of weights, within what chance allows."""

import json
from collections import Counter
from math import sqrt

import pytest
import rig

NOMINAL = {"work_a": 0.60, "work_b": 0.30, "work_c": 0.10}
MIRROR = {"work_a": 0.10, "work_b": 0.30, "work_c": 0.60}
NAMES = list(NOMINAL)

# (rate, seconds) of each run: as many samples, so as sharp a bound, in half the time at twice the rate.
RUNS = 5 * [(99, 20)] if rig.LONG else [(99, 8), (199, 4)]
runs = len(RUNS)


def blend(workers):
    """Nominal shares of the whole program, by what each worker really ran."""
    total = sum(w["cpu_ns"] for w in workers)
    return {n: sum(w["cpu_ns"] * s[n] for w, s in zip(workers, (NOMINAL, MIRROR))) / total for n in NAMES}


def count_leaves(lines, period_ns):
    found = Counter()
    for line in lines:
        found[line.leaf] += line.value / period_ns
    return found


def check_shares(leaves, expected, recorder):
    n = sum(leaves.values())
    assert n > 0, recorder.why()
    shares = {}
    for name in NAMES:
        p = expected[name]
        shares[name] = leaves[name] / n
        bound = 4 * sqrt(p * (1 - p) / n)
        assert abs(shares[name] - p) <= bound, \
            f"{name}: {shares[name]:.4f} of {n:.0f} samples, expected {p:.4f} +- {bound:.4f}\n{recorder.why()}"
    return shares


def check_weight(weight_ns, cpu_ns, recorder, threads=1, wall_ns=None):
    """Within 2 % or three periods. A program that had to share its CPUs with others is met by ticks by
    chance: four standard deviations of that are allowed beside; alone on its CPU it is next to none."""
    had = min(1, cpu_ns / (threads * (wall_ns or recorder.summary["duration_ns"])))
    chance = 4 * sqrt(cpu_ns / recorder.period_ns * (1 - had)) * recorder.period_ns
    bound = max(0.02 * cpu_ns, 3 * recorder.period_ns, chance)
    assert abs(weight_ns - cpu_ns) <= bound, \
        f"weights say {weight_ns / 1e9:.4f} s, getrusage {cpu_ns / 1e9:.4f} s, allowed {bound / 1e9:.4f} s\n{recorder.why()}"


def rusage_ns(truth):
    return sum(truth[who][what] for who in ("self", "children") for what in ("user_ns", "system_ns"))


def record_split(directory, run, workloads, program, *args):
    hz, seconds = run
    recorder = rig.record_command(directory, [workloads / program, *args, seconds], "-F", hz, seconds=seconds + 60)
    return recorder, json.loads(recorder.command_out)


def split_lines(recorder):
    return [line for line in recorder.folded if line.root.startswith("split")]


@pytest.mark.parametrize("program", ["split", "split.nofp"])
def test_split_of_one_thread(program, tmp_path, workloads):
    means = Counter()
    count = runs if program == "split" else max(1, runs // 2)
    for run in RUNS[-count:]:
        recorder, truth = record_split(tmp_path, run, workloads, program)
        shares = check_shares(count_leaves(split_lines(recorder), recorder.period_ns), NOMINAL, recorder)
        check_weight(recorder.kind["weight_ns"], rusage_ns(truth), recorder)
        means.update({n: shares[n] / count for n in NAMES})
    if count >= 5:
        for name in NAMES:
            assert abs(means[name] - NOMINAL[name]) <= 0.015, f"mean of {count} runs: {dict(means)}"


@pytest.mark.parametrize("program", ["split", "split.static", "split.musl"])
def test_stack_of_the_split_is_whole_with_frame_pointers(program, tmp_path, workloads):
    """Of a dynamic and of static programs: start code, which keeps no frame pointers, is no part of it."""
    recorder = rig.record_command(tmp_path, [workloads / program, "-t", 2], "-F", 199)
    whole = sum(line.value for line in split_lines(recorder)
                if line.user[-3:-1] in (["work", "burst"], ["calibrate_[i]", "burst"]) and line.leaf in NOMINAL and
                not any(f.startswith("[") for f in line.frames))
    in_work = sum(line.value for line in split_lines(recorder) if line.leaf in NOMINAL)
    assert whole >= 0.99 * in_work > 0, recorder.why()


@pytest.mark.parametrize("way", ["-t", "-p"])
def test_split_of_two(way, tmp_path, workloads):
    """Two threads; parent and child."""
    means, expected_means = Counter(), Counter()
    for run in RUNS if rig.LONG else 2 * RUNS[-1:]:
        recorder, truth = record_split(tmp_path, run, workloads, "split", way)
        expected = blend(truth["workers"])
        shares = check_shares(count_leaves(split_lines(recorder), recorder.period_ns), expected, recorder)
        check_weight(recorder.kind["weight_ns"], rusage_ns(truth), recorder, threads=2)
        second = [line for line in recorder.folded if line.root == "split-two"]
        check_shares(count_leaves(second, recorder.period_ns), MIRROR, recorder)
        check_weight(sum(line.value for line in second), truth["workers"][1]["cpu_ns"], recorder)
        means.update({n: shares[n] / runs for n in NAMES})
        expected_means.update({n: expected[n] / runs for n in NAMES})
    if runs >= 5:
        for name in NAMES:
            assert abs(means[name] - expected_means[name]) <= 0.015, f"mean of {runs} runs: {dict(means)}"


def test_weight_of_each_process(tmp_path, workloads):
    """Parent and child by pid, in a recording of the whole machine."""
    with rig.recording(tmp_path, "-a", "-F", 99) as recorder:
        out = rig.subprocess.run([workloads / "split", "-p", "4"], capture_output=True, text=True, check=True).stdout
    truth = json.loads(out)
    by_pid = recorder.pprof.by("pid")
    parent, child = truth["workers"]
    check_weight(by_pid[parent["pid"]], sum(truth["self"].values()), recorder)
    check_weight(by_pid[child["pid"]], sum(truth["children"].values()), recorder)


def test_threads_are_kept_apart(tmp_path, workloads):
    recorder = rig.record_command(tmp_path, [workloads / "split", "-t", 3], "-F", 199, "--per-thread")
    truth = json.loads(recorder.command_out)
    for worker, name in zip(truth["workers"], ("split", "split-two")):
        root = f"{worker['pid']}/{worker['tid']} {name}"
        check_weight(sum(line.value for line in recorder.folded.of(root)), worker["cpu_ns"], recorder)
        by_tid = sum(s.values[-1] for s in recorder.pprof.samples if s.labels.get("tid") == worker["tid"])
        check_weight(by_tid, worker["cpu_ns"], recorder)


def test_names_of_one_thread_in_turn(tmp_path, workloads):
    """A thread that renames itself: samples carry the name it had."""
    recorder = rig.record_command(tmp_path, [workloads / "renamer", 3], "-F", 499)
    truth = json.loads(recorder.command_out)
    for name in ("name-one", "name-two"):
        check_weight(sum(line.value for line in recorder.folded.of(name)), truth[name], recorder,
                     wall_ns=recorder.summary["duration_ns"] / 2)


def test_rate_does_not_bias(tmp_path, workloads):
    """The same program at 19 and at 997 Hz weighs the same."""
    for hz, seconds in ((19, 3), (997, 1)):
        recorder = rig.record_command(tmp_path, [workloads / "split", seconds], "-F", hz)
        check_weight(recorder.kind["weight_ns"], rusage_ns(json.loads(recorder.command_out)), recorder)
