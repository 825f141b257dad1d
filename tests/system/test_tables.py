# SPDX-License-Identifier: Apache-2.0
"""Unwind tables inside a fixed kernel memory, whatever the node runs: never above the plan, one table per
binary, stacks that degrade under a reason and recover, and the memory given back."""

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path

import chains
import pytest
import rig

MIB = 1 << 20
SEGMENT_VALUE = 65536  # a segment is an array of such blocks (abi/tables.h)
BUILD = "O2-pie-gcc-nofp-cet"
# What a stack may lack where memory is short, or a binary or process is new.
SHORTAGE = {"process_not_tracked", "mapping_absent", "table_absent", "table_page_absent"}


class Watch(threading.Thread):
    """The BPF maps that flyball holds, by the kernel's own figures (fdinfo), 20 times a second."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.is_over = pid, threading.Event()
        self.peak_bytes = self.peak_segments = self.looks = 0
        self.maps = {}

    def look(self):
        found = {}
        for fd in os.listdir(f"/proc/{self.pid}/fdinfo"):
            with contextlib.suppress(OSError):
                fields = dict(line.split(":\t", 1) for line in
                              Path(f"/proc/{self.pid}/fdinfo/{fd}").read_text().splitlines() if ":\t" in line)
                if "map_id" in fields:
                    found[fields["map_id"]] = fields
        return found

    def segments(self):
        return sum(int(m["value_size"]) == SEGMENT_VALUE for m in self.look().values())

    def run(self):
        while not self.is_over.wait(0.05):
            with contextlib.suppress(OSError):
                self.maps = self.look()
                total = sum(int(m["memlock"]) for m in self.maps.values())
                segments = sum(int(m["value_size"]) == SEGMENT_VALUE for m in self.maps.values())
                self.peak_bytes = max(self.peak_bytes, total)
                self.peak_segments = max(self.peak_segments, segments)
                self.looks += 1


@contextlib.contextmanager
def watched(directory, *args, hz=199):
    """A recording of the whole node and the watch over its maps; the plan is held to at the end."""
    with rig.recording(directory, "-a", "-F", hz, *args, outputs=("folded", "pb.gz", "otlp")) as recorder:
        watch = Watch(recorder.main)
        watch.start()
        yield recorder, watch
        rig.wait_for(lambda: watch.looks >= 20, "twenty looks at the maps")
        watch.is_over.set()
        watch.join()
    memory = recorder.summary["kernel_memory"]
    assert watch.peak_bytes <= memory["planned_bytes"] <= memory["budget_bytes"], (watch.peak_bytes, memory)


def whole_share(otlp, judge, wanted, since_ns=0):
    """(whole, all, verdict) of the samples at or after a wall-clock time."""
    verdict = chains.Verdict()
    for profile in otlp:
        if wanted(profile.resource):
            for sample in profile.samples:
                count = sum(t >= since_ns for t in sample.times)
                names = [f["names"][-1] if f["names"] else "?" for f in reversed(sample.stack)
                         if f["attributes"].get("profile.frame.type") == "native"]
                if names and count:
                    reason = sample.attributes.get("flyball.cut", "")
                    kind, scenario = judge.judge(names, bool(reason))
                    verdict.add(kind, scenario, names, reason, count)
    return *verdict.share(), verdict


def compile_something(directory, targets, count):
    """clang at work: two libraries of 1 MiB of tables each."""
    source = Path(directory) / "work.cc"
    source.write_text("#include <regex>\n#include <map>\n#include <string>\n"
                      "template <int N> int work(const std::string &s) { std::map<std::string, int> m; std::smatch f;"
                      ' std::regex r("a+" + std::to_string(N)); m[s] = std::regex_search(s, f, r);'
                      " return m[s] + work<N - 1>(s); }\n"
                      "template <> int work<0>(const std::string &) { return 0; }\n"
                      f"int main(int c, char **v) {{ return work<{count}>(v[c - 1]); }}\n")
    clang = os.environ.get("CLANG", "clang-19").replace("clang", "clang++")
    return targets.start(clang, "-O1", "-c", source, "-o", "/dev/null")


def test_two_mebibytes_of_tables_under_clang(tmp_path, targets, corpus):
    """clang alone wants more than there is. A small program that runs all the time keeps its table; clang's
    stacks end under a reason or are whole; what comes after clang is whole again."""
    steady = targets.start(corpus / f"family.{BUILD}", "-n", 1000000, "plain")
    rig.is_burning(steady.pid)
    with watched(tmp_path, "--table-memory", "2MiB") as (recorder, watch):
        rig.run_for(1)
        compile_something(tmp_path, targets, 120 if rig.LONG else 40).wait()
        later = targets.start(corpus / "family.O3-static-gcc-fp-nocet", "-n", 1000000, "alloca")
        rig.is_burning(later.pid)
        after = rig.time.time_ns() + rig.SECOND // 2
        rig.run_for(1.5)
    assert watch.peak_segments <= 1, watch.peak_segments
    whole, every, verdict = whole_share(recorder.otlp, chains.family_chains(BUILD), chains.of_pid(steady.pid),
                                        recorder.otlp[0].time_ns + rig.SECOND)
    assert not verdict.wrong and whole >= 0.95 * every > 0, f"{verdict.text()}\n{recorder.why()}"
    whole, every, verdict = whole_share(recorder.otlp, chains.family_chains("O3"), chains.of_pid(later.pid), after)
    assert not verdict.wrong and whole >= 0.95 * every > 0, f"{verdict.text()}\n{recorder.why()}"
    clang = [s for p in recorder.otlp if "clang" in p.resource.get("process.executable.path", "") for s in p.samples]
    cut = {s.attributes["flyball.cut"] for s in clang if "flyball.cut" in s.attributes}
    assert clang and cut & SHORTAGE, f"{cut}\n{recorder.why()}"


def test_one_table_for_all_processes_of_a_binary(tmp_path, workloads):
    count = 1000 if rig.LONG else 200
    with watched(tmp_path) as (recorder, _):
        subprocess.run([workloads / "runner", "-j", "20", "-n", str(count), workloads / "brief20.nofp"],
                       stdout=subprocess.DEVNULL, check=True)
    # The runner, the program, the C library, the loader, the vDSO, and whatever else the node ran meanwhile.
    unwinding = recorder.summary["unwinding"]
    assert 0 < unwinding["built_total"] < count / 2 and unwinding["processes_peak"] > 5, unwinding


def test_short_programs_of_many_binaries(tmp_path, workloads):
    """More binaries than will be there again: the memory holds, the samples are whole and named. Those that a
    binary's first run has before its table is there are few."""
    binaries, count = (200, 5000) if rig.LONG else (40, 400)
    programs = rig.make_distinct(workloads / "brief20.nofp.pattern", tmp_path, binaries)
    with watched(tmp_path, hz=97) as (recorder, watch):
        level = watch.segments()
        out = subprocess.run([workloads / "runner", "-j", "2", "-n", str(count), *(p for p, _ in programs.values())],
                             capture_output=True, text=True, check=True).stdout
        if rig.LONG:
            rig.wait_for(lambda: watch.segments() <= max(1, level), "segments are given back", seconds=120, every=1)
    assert json.loads(out)["runs"] == count
    names = {path.name: function for path, function in programs.values()}
    right = every = 0
    for profile in recorder.otlp:
        function = names.get(profile.resource.get("process.executable.path", "").rsplit("/", 1)[-1])
        for sample in profile.samples if function else ():
            user = [f["names"][-1] if f["names"] else "" for f in reversed(sample.stack)
                    if f["attributes"].get("profile.frame.type") == "native"]
            if function in user:
                every += len(sample.times)
                right += len(sample.times) if user[-2:] == ["main", function] and user[0] == "_start" else 0
    least = 0.98 * every if rig.LONG else every - 2 * binaries
    assert right >= least > 0.8 * every > 0, f"{right} of {every}\n{recorder.why()}"


def test_many_live_processes(tmp_path, targets, workloads):
    """All have worked and wait; one works on. It is whole, and the plan holds."""
    count = 3000 if rig.LONG else 600
    with watched(tmp_path) as (recorder, _):
        crowd = targets.start(workloads / "crowd.nofp", count, 2, stdin=subprocess.PIPE)
        assert crowd.stdout.readline() == b"ready\n"
        one = targets.start(workloads / "brief20.nofp", 2500)
        rig.is_burning(one.pid)
        since = rig.time.time_ns() + rig.SECOND // 2
        rig.run_for(1.5)
        crowd.stdin.close()
        crowd.wait()
    judge = chains.Chains({"brief": [chains.MAIN + "brief_work_000 lib*"]})
    whole, every, verdict = whole_share(recorder.otlp, judge, chains.of_pid(one.pid), since)
    assert not verdict.wrong and whole >= 0.95 * every > 0, f"{verdict.text()}\n{recorder.why()}"


@pytest.mark.long
def test_tables_are_given_back(tmp_path, targets):
    """After clang has ended, within the time a table is kept for, memory is as before it."""
    with watched(tmp_path) as (_, watch):
        rig.run_for(2)
        before = watch.segments()
        compile_something(tmp_path, targets, 120).wait()
        assert watch.peak_segments > before
        rig.wait_for(lambda: watch.segments() <= before, "clang's tables are given back", seconds=90, every=1)


def memory_group():
    """(root, the file that tells kernel memory in use) of the memory controller, or None."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        words = right.split()
        if words[0] == "cgroup" and "memory" in words[2].split(","):
            return Path(left.split()[4]), "memory.kmem.max_usage_in_bytes"
    root = rig.unified_cgroup()
    if "memory" in (root / "cgroup.controllers").read_text().split():
        (root / "cgroup.subtree_control").write_text("+memory")
        return root, "memory.peak"
    return None


def test_a_cgroup_counts_no_more_than_the_plan(tmp_path, targets):
    """What the kernel charges for flyball's kernel memory, beside what fdinfo tells."""
    root, peak = memory_group()
    with rig.cgroup(root / f"fly-tables-{os.getpid()}") as group:
        if not (group / peak).exists():
            pytest.skip(f"this kernel has no {peak}")
        enter = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))  # noqa: E731
        recorder = rig.Recorder(tmp_path, "-a", "-F", 199, "--table-memory", "4MiB", preexec_fn=enter)
        try:
            recorder.wait_sampling()
            compile_something(tmp_path, targets, 40).wait()
            charged = int((group / peak).read_text())
            recorder.stop()
            recorder.finish(seconds=rig.PATIENCE)
        finally:
            recorder.give_up()
    allowed = recorder.summary["kernel_memory"]["planned_bytes"] + 8 * MIB  # programs, events, page tables, files
    if peak == "memory.peak":
        allowed += recorder.summary["cost"]["peak_anon_bytes"] + 64 * MIB  # and user memory with its page cache
    assert charged <= allowed, (charged, recorder.summary["kernel_memory"])
