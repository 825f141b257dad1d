# SPDX-License-Identifier: Apache-2.0
"""Samples and trace spans: a program that publishes spans, each sample compared by time with its own log.

No sample may ever be on a wrong span. Between the clock before and after a publication either side is right.
"""

import bisect
import json
import time
from collections import Counter, defaultdict

import pytest
import rig

HZ = 997
SETTLE_NS = rig.SECOND  # the first samples of a program come before it is known that it publishes
CLOCKS_NS = 20_000      # how far the clocks' offset, taken once, and what the program read may lie apart
VARIANTS = ["desc", "general", "initial", "exported", "plain", "static", "staticpie", "musl", "muslstatic"]


class Log:
    """What the threads published: tid -> [(before, after, span)], by time."""

    def __init__(self, path):
        self.of = defaultdict(list)
        for line in path.read_text().splitlines():
            tid, before, after, span = map(int, line.split())
            self.of[tid].append((before, after, span))
        self.starts = {tid: [before for before, _, _ in entries] for tid, entries in self.of.items()}

    def spans_at(self, tid, time_ns):
        """The spans that a sample may be on; 0: none."""
        entries = self.of[tid]
        last = bisect.bisect_right(self.starts[tid], time_ns + CLOCKS_NS) - 1
        allowed = set()
        while True:
            if last < 0:
                return allowed | {0}
            _, after, span = entries[last]
            allowed.add(span)
            if after + CLOCKS_NS < time_ns - CLOCKS_NS:
                return allowed
            last -= 1


def check_route(sample, span, is_changing):
    """The attribute goes with its span; only while one is published may it be missing."""
    route = sample.attributes.get("http.route")
    assert route == (f"/{span % 7}" if span else None) or (is_changing and route is None), (span, sample.attributes)


def judge(recorder, log, unknown):
    """Counter of what became of the samples: right, none, wrong, missing, fault; those of an unknown time aside."""
    verdict, began = Counter(), min(starts[0] for starts in log.starts.values())
    for profile in recorder.otlp:
        for sample in profile.samples:
            tid = sample.attributes["thread.id"]
            if tid not in log.of:
                continue
            span = int.from_bytes(bytes.fromhex(sample.span_id)[:4], "little")
            for time_ns in sample.times:
                if unknown[0] <= time_ns < unknown[1]:
                    continue
                allowed = log.spans_at(tid, time_ns)
                if "flyball.span_fault" in sample.attributes:
                    verdict["fault"] += 1
                elif span in allowed:
                    verdict["right" if span else "none"] += 1
                    check_route(sample, span, len(allowed) > 1)
                elif span:
                    verdict["wrong"] += 1
                elif time_ns > began + SETTLE_NS:
                    verdict["missing"] += 1
    return verdict


def record(tmp_path, program, threads, milliseconds, hz=HZ):
    log = tmp_path / "log"
    recorder = rig.record_command(tmp_path, [program, threads, milliseconds, log], "-F", hz,
                                  outputs=("folded", "pb.gz", "otlp", "json"))
    return recorder, Log(log)


def check(recorder, log, unknown=(0, 0)):
    verdict = judge(recorder, log, unknown)
    said = f"{verdict}\n{recorder.why()}"
    assert verdict["wrong"] == 0 and verdict["right"] > 100 and verdict["none"] > 0, said
    assert verdict["missing"] == 0, said
    assert verdict["fault"] <= 0.001 * sum(verdict.values()) + 1, said
    return verdict


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_way_to_a_thread_local(tmp_path, workloads, variant):
    program = workloads / f"spans.{variant}"
    recorder, log = record(tmp_path, program, 2, 2500)
    check(recorder, log)


def test_many_threads_and_every_output(tmp_path, workloads):
    program = workloads / "spans.desc"
    recorder, log = record(tmp_path, program, 64, 30000 if rig.LONG else 4000, 4999 if rig.LONG else HZ)
    verdict = check(recorder, log)
    assert not rig.LONG or sum(verdict.values()) >= 200_000, verdict
    spans = recorder.summary["spans"]
    assert spans["samples"] >= verdict["right"] and spans["processes"] == 1, spans
    services = {p.resource["service.name"] for p in recorder.otlp if p.samples and
                any(s.attributes["thread.id"] in log.of for s in p.samples)}
    assert services == {"spans-test"}, services
    # Two spans are never one sample, in any format; and all formats say the same of each.
    otlp, pprof = Counter(), Counter()
    for profile in recorder.otlp:
        for sample in profile.samples:
            otlp[sample.trace_id, sample.span_id,
                 sample.attributes.get("http.route")] += len(sample.times) * profile.period
    for sample in recorder.pprof.samples:
        pprof[sample.labels.get("trace_id", ""), sample.labels.get("span_id", ""),
              sample.labels.get("http.route")] += sample.values[-1]
    assert otlp == pprof and len(otlp) > 50
    links = json.loads(recorder.outputs["json"].read_text())["dictionary"]["linkTable"]
    assert {(link.get("traceId", ""), link.get("spanId", "")) for link in links} == {key[:2] for key in otlp} | {("", "")}


def test_nobody_publishes(tmp_path, workloads):
    recorder = rig.record_command(tmp_path, [workloads / "split", 1], "-F", HZ, outputs=("folded", "pb.gz", "otlp"))
    assert not any(recorder.summary["spans"].values()), recorder.summary["spans"]
    assert not any("span_id" in s.labels for s in recorder.pprof.samples)


# What a process may publish, and how its samples or it are flagged.
HOSTILE = [("unmapped", "context_page_absent"), ("kernel", "context_page_absent"),
           ("noncanonical", "context_page_absent"), ("offset", "context_page_absent"),
           ("invalid", "context_invalid"), ("edge", "attributes_page_absent"), ("huge", "attributes_truncated"),
           ("malformed", "attributes_invalid"), ("dirty", "attributes_invalid"), ("twice", "attributes_invalid"),
           ("many", "attributes_truncated"), ("unnamed", None), ("changing", "attributes_invalid"),
           ("keymap", "processes_invalid"), ("nowhere", "processes_invalid"), ("noise", "processes_invalid"),
           ("stalled", "processes_invalid"), ("libraries", "processes_unsupported")]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, workloads):
    """One recording of all of them, and of one that is honest: mode -> its samples."""
    directory = tmp_path_factory.mktemp("hostile")
    programs = [[workloads / "spanhostile", mode, "6000"] for mode, _ in HOSTILE]
    programs.append([workloads / "spans.desc", 1, "6000", directory / "log"])
    script = "".join(f"{' '.join(map(str, argv))} >/dev/null & echo $! {argv[1]} >>{directory}/pids\n"
                     for argv in programs) + "wait\n"
    recorder = rig.record_command(directory, ["/bin/sh", "-c", script], "-F", HZ, outputs=("otlp", "pb.gz", "folded"))
    names = dict(line.split() for line in (directory / "pids").read_text().splitlines())
    samples = defaultdict(list)
    for profile in recorder.otlp:
        samples[names.get(str(profile.resource["process.pid"]))] += profile.samples
    return recorder, samples


@pytest.mark.parametrize("mode, flag", HOSTILE)
def test_hostile_publisher_is_flagged(hostile, mode, flag):
    recorder, samples = hostile
    faults = Counter(s.attributes.get("flyball.span_fault") for s in samples[mode])
    spans = recorder.summary["spans"]
    assert samples[mode], recorder.why()
    if flag and flag.startswith("processes_"):
        assert set(faults) == {None} and not any(s.span_id for s in samples[mode]), faults
        assert spans[flag] == sum(f == flag for _, f in HOSTILE), spans
    else:
        # Before it is known that it publishes there is no flag; the memory of one that ends is gone.
        assert faults[flag] or mode == "changing", faults
        assert set(faults) <= {None, flag, "context_page_absent"} or mode == "changing", faults
    if flag and flag.startswith("attributes_"):
        assert any(s.span_id for s in samples[mode]), faults
    if mode == "unnamed":
        assert {s.attributes.get("context.attribute.200") for s in samples[mode] if s.span_id} == {"x"}


def test_hostile_publishers_harm_nobody_else(hostile):
    recorder, samples = hostile
    right = [s for s in samples["1"] if s.span_id]
    assert right and all(s.attributes["http.route"] for s in right[5:]), recorder.why()
    assert recorder.summary["helpers"]["reader_restarts"] <= 2, recorder.summary["helpers"]


@pytest.mark.skipif(not rig.LONG, reason="sets the clock of the machine")
def test_clock_is_stepped(tmp_path, workloads):
    """By 50 ms: samples before and after it are on the span that the program's own clock says.

    Between the step and the moment that the recorder, which had to get a CPU, looked at the clock, they are not.
    """
    program, log = workloads / "spans.desc", tmp_path / "log"
    step = 50_000_000
    with rig.recording(tmp_path, "-F", HZ, "--", program, 2, 3000, log, outputs=("otlp",)) as recorder:
        rig.run_for(1.5)
        began = time.clock_gettime_ns(time.CLOCK_REALTIME)
        time.clock_settime_ns(time.CLOCK_REALTIME, began + step)
        try:
            recorder.finish()
        finally:
            time.clock_settime_ns(time.CLOCK_REALTIME, time.clock_gettime_ns(time.CLOCK_REALTIME) - step)
    clock = recorder.summary["clock"]
    assert clock["steps"] == 1 and abs(clock["stepped_ns"] - step) < 1_000_000, clock
    check(recorder, Log(log), (began, began + step + 200_000_000))
