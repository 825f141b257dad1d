# SPDX-License-Identifier: Apache-2.0
"""Lines and inlined calls: a program whose inlined functions are known, judged by eu-addr2line; field
case 38, debug data that is compressed, split, or that claims to be what it is not."""

import gzip
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import rig
import wire

HZ = 399


def locations(data):
    """(path, address, link-time) -> [(function, file, line)] of a pprof file, innermost first."""
    message = wire.Message(gzip.decompress(data))
    strings = [text.decode() for text in message.fields[6]]
    functions = {}
    for f in message.messages(5):
        functions[f.one(1)] = (strings[f.one(2)], strings[f.one(4)])
    paths = {m.one(1): strings[m.one(5)] for m in message.messages(3)}
    found = {}
    for loc in message.messages(4):
        lines = [(*functions[line.one(1)], line.one(2)) for line in loc.messages(4)]
        found[paths.get(loc.one(2), ""), loc.one(3)] = lines
    return found


def eu_addr2line(path, addresses):
    done = subprocess.run(["eu-addr2line", "-afi", "-e", path, *map(hex, addresses)], capture_output=True, text=True,
                          check=False)
    found, at, name = {}, None, None
    for line in done.stdout.splitlines():
        if re.fullmatch("0x[0-9a-f]+", line):
            at, name = int(line, 16), None
            found[at] = []
        elif name is None:
            name = line.split(" inlined at ")[0]
        else:
            file, number = re.match(r"(.*?):(\d+)", line).groups()
            found[at].append((name, file, int(number)))
            name = None
    return found


def failed(recorder):
    """Places whose lines could not be read; that a file has none is no failure."""
    return {why: n for why, n in recorder.summary["lines"]["missing"].items() if n and why != "no_lines"}


@pytest.fixture
def recorded(tmp_path, workloads, request):
    return rig.record_command(tmp_path, [workloads / request.param, 2], "-F", HZ, outputs=("folded", "pb.gz", "otlp", "html"))


@pytest.mark.parametrize("recorded", ["inlined", "inlined.clang"], indirect=True)
def test_inlined_calls_are_frames(recorded):
    comm = recorded.argv[-2].rsplit("/", 1)[1]
    weights = Counter()
    for line in recorded.folded.of(comm):
        if "outer_work" in line.user:
            chain = line.user[line.user.index("outer_work"):]
            assert chain in (["outer_work"], ["outer_work", "middle_step_[i]"],
                             ["outer_work", "middle_step_[i]", "inner_mix_[i]"]), recorded.why()
            weights[len(chain)] += line.value
    total = sum(weights.values())
    assert total > 0.9 * recorded.folded.total and weights[1] < 0.2 * total and weights[3] > 0.2 * total, recorded.why()
    lines = recorded.summary["lines"]
    assert 0 < lines["inlined"] <= lines["lined"] <= lines["places"], lines
    assert not failed(recorded), lines


@pytest.mark.parametrize("recorded", ["inlined"], indirect=True)
def test_lines_are_those_of_eu_addr2line(recorded):
    path = recorded.argv[-2]
    ours = {address: lines for (file, address), lines in locations(recorded.outputs["pb.gz"].read_bytes()).items()
            if file == path}
    theirs = eu_addr2line(path, ours)
    judged = 0
    for address, lines in ours.items():
        if theirs[address][-1][2]:
            assert lines == theirs[address], hex(address)
            judged += 1
    assert judged >= 3  # a short loop: samples fall on few of its instructions


def separate(program, into, *, dwz=False):
    """A copy of program, and its debug file apart, found by link; with dwz what two of those share is a third."""
    copies = [into / program.name, into / f"{program.name}.twin"]
    for copy in copies:
        debug = f"{copy}.debug"
        subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
        subprocess.run(["strip", "-o", copy, program], check=True)
    if dwz:
        subprocess.run(["dwz", "-m", into / "common.dwz", "-M", into / "common.dwz",
                        *(f"{copy}.debug" for copy in copies)], check=True)
    for copy in copies:
        subprocess.run(["objcopy", f"--add-gnu-debuglink={copy}.debug", copy], check=True)
    return copies[0]


@pytest.mark.parametrize("dwz", [False, True], ids=["plain", "dwz"])
def test_lines_of_a_separate_debug_file(tmp_path, workloads, dwz):
    program = separate(workloads / "inlined", tmp_path, dwz=dwz)
    recorder = rig.record_command(tmp_path, [program, 2], "-F", HZ)
    ours = {address: lines for (file, address), lines in locations(recorder.outputs["pb.gz"].read_bytes()).items()
            if file == str(program)}
    theirs = eu_addr2line(program, ours)
    chains = Counter(tuple(function for function, _, _ in lines) for lines in ours.values())
    assert ("inner_mix", "middle_step", "outer_work") in chains, f"{ours}\n{recorder.why()}"
    judged = [address for address in ours if theirs[address][-1][2]]
    assert len(judged) >= 3 and all(ours[a] == theirs[a] for a in judged), f"{ours}\n{theirs}"
    assert not failed(recorder), recorder.why()


def test_lines_of_a_debug_file_that_is_gone(tmp_path, workloads):
    """Names survive it, lines do not, and that is said."""
    program = separate(workloads / "inlined", tmp_path)
    for is_there in (True, False):
        if not is_there:
            Path(f"{program}.debug").unlink()
        recorder = rig.record_command(tmp_path, [program, 1], "-F", HZ, symbol_cache=tmp_path / "symbols")
        assert recorder.folded.leaves("inlined")["outer_work" if not is_there else "inner_mix_[i]"] > 0, recorder.why()
        places = [lines for (file, _), lines in locations(recorder.outputs["pb.gz"].read_bytes()).items()
                  if file == str(program)]
        assert any(number for lines in places for _, _, number in lines) == is_there, places
    assert recorder.summary["lines"]["missing"]["no_lines"] >= len(places) > 0, recorder.why()


def test_no_inlines_reads_no_lines(tmp_path, workloads):
    recorder = rig.record_command(tmp_path, [workloads / "inlined", 1], "--no-inlines", "-F", HZ)
    assert recorder.folded.leaves("inlined")["outer_work"] > 0.9 * recorder.folded.total, recorder.why()
    assert not any("_[i]" in line.text for line in recorder.folded)
    assert recorder.summary["lines"]["lined"] == 0 and not any(recorder.summary["lines"]["missing"].values())
    assert not any(line for lines in locations(recorder.outputs["pb.gz"].read_bytes()).values() for _, _, line in lines)


# ------------------------------------------------------------------------------------ 38

LINED = ["deep.g", "deep.zlib", "deep.zlib-gnu", "deep.zstd", "deep.split", "deep.alt"]


@pytest.mark.parametrize("name", [*LINED, "deep.gzbomb", "deep.stripped"])
def test_38_debug_data_in_every_form(tmp_path, targets, cases, name):
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        target = targets.start(cases / name, 10)
        rig.is_burning(target.pid)
        rig.run_for(0.7)
        rig.kill(target)
    path = str(cases / name)
    lined = {f: (file, line) for (file_path, _), lines in locations(recorder.outputs["pb.gz"].read_bytes()).items()
             if file_path == path for f, file, line in lines if line}
    missing = recorder.summary["lines"]["missing"]
    # The names are the symbol table's, whatever the debug data is.
    if name != "deep.stripped":
        assert recorder.folded.leaves(name[:15])["leaf_spin"] > 0, recorder.why()
    if name in LINED:
        assert lined["leaf_spin"][0].endswith("/deep.c"), recorder.why()
    else:
        assert not lined
    if name == "deep.stripped":
        assert missing["no_lines"] > 0, recorder.why()
    if name == "deep.gzbomb":
        assert missing["lines_limit"] > 0, recorder.why()
    assert recorder.summary["helpers"]["reader_restarts"] == 0
    assert recorder.summary["cost"]["peak_anon_bytes"] < 64 << 20


def test_38_a_reader_that_dies_of_lines_costs_no_names(tmp_path, targets, cases):
    """A million rows are more than the reader may hold: it ends, once, and says so."""
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        target = targets.start(cases / "deep.linebomb", 20)
        rig.is_burning(target.pid)
        rig.run_for(7)  # lines are asked for every 3 s
        rig.kill(target)
    leaves = recorder.folded.leaves("deep.linebomb")
    assert leaves["leaf_spin"] > 0.9 * sum(leaves.values()), recorder.why()
    assert recorder.summary["lines"]["missing"]["reader_failed"] > 0, recorder.why()
    assert recorder.summary["helpers"]["reader_restarts"] == 1, recorder.why()
    assert recorder.summary["cost"]["peak_anon_bytes"] < 160 << 20
