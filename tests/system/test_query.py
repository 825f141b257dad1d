# SPDX-License-Identifier: Apache-2.0
"""`flyball query` and `flyball diff`: what was written is read back to the sample, and two profiles are compared."""

import json
import os
import subprocess
from collections import Counter

import pytest
import rig
from wire import Folded, Otlp, Pprof, is_pseudo

HZ = 4999
FILL = rig.BUILD / "bench" / "bench_store"


def ask(command, *args, status=0):
    done = rig.flyball(command, *args, text=True)
    assert done.returncode == status, done.stderr
    return done


def as_json(command, *args):
    return json.loads(ask(command, *args, "--json").stdout)


def by_sample(profiles, key):
    """Nanoseconds by what a sample says of itself."""
    sums = Counter()
    for profile in profiles:
        for sample in profile.samples:
            sums[key(profile, sample)] += len(sample.times) * profile.period
    return sums


def everything(profile, sample):
    """What may never be merged, of a sample."""
    frames = tuple((tuple(f["names"]), f["address"], f["mapping"]["path"]) for f in sample.stack)
    return (tuple(sorted(profile.resource.items())), tuple(sorted(sample.attributes.items())), sample.trace_id,
            sample.span_id, frames)


@pytest.fixture(scope="module", name="spans")
def spans_recorded(tmp_path_factory, workloads):
    """A program whose threads publish spans, with labels."""
    directory = tmp_path_factory.mktemp("spans")
    return rig.record_command(directory, [workloads / "spans.desc", 4, 1500, directory / "log"], "-F", 997,
                              outputs=("folded", "pb.gz", "otlp"))


def test_every_output_comes_back_equal(spans, tmp_path):
    written = tmp_path / "again.folded", tmp_path / "again.otlp", tmp_path / "again.pb.gz"
    ask("query", spans.outputs["otlp"], *(word for path in written for word in ("-o", path)))
    assert written[0].read_bytes() == spans.outputs["folded"].read_bytes()
    again = Otlp(written[1].read_bytes())
    assert by_sample(again, everything) == by_sample(spans.otlp, everything)
    assert [p.attributes for p in again if p.attributes] == [p.attributes for p in spans.otlp if p.attributes]
    pprof = Pprof(written[2].read_bytes())
    assert rig.pprof_faults(written[2].read_bytes()) == []
    for label in ("tid", "span_id", "http.route", "cut"):
        assert pprof.by(label) == spans.pprof.by(label), label


def test_top_and_tree_are_the_samples(spans):
    said = as_json("query", spans.outputs["otlp"], "--top", "-n", 0)
    assert said["weight_ns"] == spans.otlp.total_ns and said["samples"] == spans.kind["delivered"]
    assert said["ledger_is_exact"] and said["ledger"]["taken"] == spans.kind["taken"]
    leaves, ours = Counter(), Counter()
    for line in spans.folded:
        leaf = line.frames[-1]
        if "+0x" not in leaf and not is_pseudo(leaf):
            leaves[leaf.removesuffix("_[k]").removesuffix("_[i]")] += line.value
    for row in said["top"]:
        if row["function"] != "[unnamed]" and row["self_ns"]:
            ours[row["function"]] += row["self_ns"]
    assert ours == leaves and len(ours) > 5
    tree = as_json("query", spans.outputs["otlp"], "--tree", "--min", 0)["tree"]
    assert sum(n["total_ns"] for n in tree if n["depth"] == 0) == said["weight_ns"]
    assert sum(n["self_ns"] for n in tree) == said["weight_ns"]


def test_spans_are_found_each_by_its_id(spans, tmp_path):
    sums = by_sample(spans.otlp, lambda _, s: (s.trace_id, s.span_id))
    sums.pop(("", ""), None)
    rows = as_json("query", spans.outputs["otlp"], "--by-span", "-n", 0)["by_span"]
    assert {(r["trace_id"], r["span_id"]): r["weight_ns"] for r in rows} == sums and len(rows) > 50
    assert [r["weight_ns"] for r in rows] == sorted((r["weight_ns"] for r in rows), reverse=True)
    trace, span = rows[0]["trace_id"], rows[0]["span_id"]
    one = as_json("query", spans.outputs["otlp"], "--span", span)
    assert one["weight_ns"] == sum(v for (_, s), v in sums.items() if s == span)
    assert one["ledger_is_exact"] and one["ledger"]["delivered"] == one["samples"]
    assert one["left_out_ns"] + one["weight_ns"] == spans.otlp.total_ns
    both = as_json("query", spans.outputs["otlp"], "--trace", trace, "--span", span)
    assert both["weight_ns"] == rows[0]["weight_ns"]
    ask("query", spans.outputs["otlp"], "--trace", trace, "-o", tmp_path / "one.otlp")
    assert {s.trace_id for p in Otlp((tmp_path / "one.otlp").read_bytes()) for s in p.samples} == {trace}


def test_threads_and_processes_are_chosen(spans):
    threads = by_sample(spans.otlp, lambda _, s: s.attributes["thread.id"])
    for thread, value in threads.items():
        assert as_json("query", spans.outputs["otlp"], "--thread", thread)["weight_ns"] == value
    services = by_sample(spans.otlp, lambda p, _: p.resource["service.name"])
    assert as_json("query", spans.outputs["otlp"], "--service", "spans-*")["weight_ns"] == services["spans-test"]
    nothing = ask("query", spans.outputs["otlp"], "--process", "no-such-program")
    assert "0 samples" in nothing.stdout and "not asked for" in nothing.stdout


def test_files_directories_and_a_store_add_up(spans, tmp_path):
    data = spans.outputs["otlp"].read_bytes()
    for name in ("a.otlp", "b.otlp"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "notes.txt").write_text("no profile")
    subprocess.run([FILL, tmp_path / "store", "16MiB", "3", tmp_path / "a.otlp"], check=True,
                   stdout=subprocess.DEVNULL)
    one = as_json("query", tmp_path / "a.otlp")
    for said, times in ((as_json("query", tmp_path), 2), (as_json("query", tmp_path, tmp_path / "a.otlp"), 3),
                        (as_json("query", "--store", tmp_path / "store"), 3)):
        assert said["blocks"] == times and said["ledger_is_exact"]
        assert said["weight_ns"] == times * one["weight_ns"]
        assert said["ledger"]["taken"] == times * one["ledger"]["taken"]
        assert said["spans"]["spans"] == one["spans"]["spans"]
        assert [(r["function"], r["self_ns"]) for r in said["top"]] == \
               [(r["function"], times * r["self_ns"]) for r in one["top"]]
    out = ask("query", tmp_path, "-o", "-").stdout.encode()
    assert Folded(out).total == 2 * one["weight_ns"]


def test_what_cannot_be_read_is_said(spans, tmp_path):
    data = spans.outputs["otlp"].read_bytes()
    (tmp_path / "cut.otlp").write_bytes(data[:len(data) // 2])
    (tmp_path / "page.otlp").write_text("<!doctype html>")
    (tmp_path / "noise.otlp").write_bytes(b"\x07" + os.urandom(100))
    (tmp_path / "empty").mkdir()
    for name, words in (("cut.otlp", "damaged"), ("page.otlp", "HTML"), ("noise.otlp", "not a profile"),
                        ("empty", "no file in it"), ("absent", "No such file")):
        said = ask("query", tmp_path / name, status=4).stderr
        assert words in said and len(said.splitlines()) == 1, said
    for args in (("--span", "12", "a"), ("--top", "--tree", "a"), ("-o", "x.doc", "a"), ("--min", "nan", "a"),
                 ("--kind", "off-cpu", "a"), ("--since", "soon", "a"), ("--store", "/x", "a"), ("-n", "x", "a")):
        said = ask("query", *args, status=2).stderr
        assert len(said.splitlines()) == 1 and "flyball query --help" in said, said
    assert len(ask("diff", "one", status=2).stderr.splitlines()) == 1


# ------------------------------------------------------------------------------------ diff


def record_split(directory, program, points):
    """Without the kernel's part: how often the program is interrupted is the machine's doing, and differs."""
    directory.mkdir()
    recorder = rig.record_command(directory, [program, "-s", points, 3], "-F", HZ, "--no-kernel", outputs=("otlp",))
    return recorder.outputs["otlp"]


def test_a_regression_of_five_points_is_named_and_chance_is_not(workloads, tmp_path):
    before, again, after = (record_split(tmp_path / name, workloads / "split", points)
                            for name, points in (("before", 0), ("again", 0), ("after", 5)))
    same = as_json("diff", before, again)
    assert same["larger"] == same["smaller"] == [], same
    assert "none differ by more than chance" in ask("diff", before, again).stdout
    changed = as_json("diff", before, after)
    first = changed["larger"][0]
    assert first["function"] == "work_c" and abs(first["delta"] - 0.05) < first["chance"] + 0.01, changed
    assert changed["smaller"][0]["function"] == "work_b", changed
    for row in changed["larger"] + changed["smaller"]:
        assert abs(row["delta"]) > row["chance"] > 0, row
    text = ask("diff", before, after).stdout
    assert text.index("larger share in B") < text.index("work_c") < text.index("smaller share in B")
    assert as_json("diff", after, after)["larger"] == []
    none = ask("diff", before, after, "--process", "nobody", status=4).stderr
    assert "no samples" in none
