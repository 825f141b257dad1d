# SPDX-License-Identifier: Apache-2.0
"""The reader killed at random moments of a recording: nothing is lost but a few names, and each says why."""

import json
import os
import random
import signal

import rig

HZ = 499


def reader_of(main):
    """The pid of the live reader."""
    for pid in rig.descendants(main):
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "flyball-reader":
                return pid
        except OSError:
            continue
    return None


def kill_readers(recorder, times):
    """One after the other, each within 0.3 s of its start: idle, at work, or not yet ready."""
    last = None
    for _ in range(times):
        pid = rig.wait_for(lambda: (p := reader_of(recorder.main)) != last and p, "a new reader runs", every=0.001)
        rig.run_for(random.choice((0, random.uniform(0, 0.02), random.uniform(0, 0.3))))
        os.kill(pid, signal.SIGKILL)
        last = pid
    return rig.wait_for(lambda: (p := reader_of(recorder.main)) != last and p, "the last reader runs")


def work_for_the_compiler(path):
    """Enough C that clang is at it for a while, in many places of a large library."""
    lines = ["extern int sink(int);"]
    for i in range(4000):
        lines.append(f"int f{i}(int a, int b) {{ int s = 0; for (int i = 0; i < a; i++) "
                     f"s += b * i ^ (s >> {i % 7}); if (s == {i}) s = sink(s / (b + {i})); return s % {i + 3}; }}")
    path.write_text("\n".join(lines))
    return path


def test_killed_at_random(tmp_path, targets, workloads):
    """50 times, 15 in the short form."""
    kills, count = (50, 400) if rig.LONG else (15, 100)
    seed = int(os.environ.get("FLYBALL_SEED", random.randrange(1 << 30)))
    random.seed(seed)
    programs = rig.make_distinct(workloads / "brief20.pattern", tmp_path, count)
    source = work_for_the_compiler(tmp_path / "many.c")
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        compiler = targets.start("sh", "-c", 'while :; do clang-19 -O2 -c -o "$0.o" "$0"; done', source)
        runner = targets.start(workloads / "runner", "-j", 2, "-n", count, *(p for p, _ in programs.values()))
        kill_readers(recorder, kills)
        out, _ = runner.communicate(timeout=rig.PATIENCE)
        rig.run_for(0.5)
        for pid in [*rig.descendants(compiler.pid), compiler.pid]:
            os.kill(pid, signal.SIGKILL)
    truth = json.loads(out.splitlines()[-1])
    said = f"FLYBALL_SEED={seed}\n{recorder.why()}"
    assert truth["failed"] == 0 and truth["runs"] == count, truth
    # Every sample is there, with its ledger (rig.check_summary), whatever became of its name.
    pids = set(truth["pids"])
    weight = sum(ns for pid, ns in recorder.pprof.by("pid").items() if pid in pids)
    assert weight >= 0.9 * (truth["user_ns"] + truth["system_ns"]), said
    assert recorder.summary["helpers"]["reader_restarts"] == kills, said
    # A name is right or it is none.
    nameless = set()
    for sample in recorder.pprof.samples:
        comm, leaf = sample.labels["comm"], sample.frames[0] if sample.frames else None
        if comm not in programs or not leaf or not leaf.mapping or not leaf.mapping.path.endswith(comm):
            continue
        assert not leaf.name.startswith("brief_work_") or leaf.name == programs[comm][1], said
        if not leaf.name.startswith("brief_work_") and not leaf.names:
            nameless.add(comm)
    # What a killed reader was at is tried again; what meets three of them says so, and no other reason is given.
    unnamed = {reason for reason, n in recorder.summary["stacks"]["unnamed"].items() if n}
    assert not unnamed & {"helper_limit", "read_timeout", "open_timeout", "file_invalid", "no_time"}, said
    assert len(nameless) <= kills // 5 and ("reader_failed" in unnamed or not nameless), f"{nameless}\n{said}"
    print(f"{kills} kills, {len(nameless)} of {count} programs without names, {unnamed}")
