# SPDX-License-Identifier: Apache-2.0
"""What names cost: large programs of every kind, from nothing and with their symbol files there.

Bytes are asserted as they are promised; times at five times the promise, since a quiet machine is not
sure."""

import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
import rig

ALL_BYTES = 96 << 20  # anonymous memory of all of flyball's processes together
READER_BYTES = 64 << 20
END_S = 2  # from the end of the recording until its files are there
FACTOR = 1 if rig.LONG else 5

PROGRAMS = {
    "clang-19": "for i in 1 2 3 4; do clang-19 -O2 -c -o x.o x.c; done",
    "node": "node -e 'let s = 0; for (let i = 0; i < 2e7; i++) s += i % 7; console.log(s)'",
    "java": "java -version",
    "git": "git init -q repo && cp x.c repo && git -C repo add x.c",
    "python3": "python3 -c 'print(sum(i * i for i in range(1000000)))'",
    "rustc": "rustc --emit=metadata -o x.rmeta x.rs",
}


class Memory(threading.Thread):
    """Peaks of the anonymous memory of flyball's own processes, every 10 ms."""

    def __init__(self, recorder):
        super().__init__(daemon=True)
        self.recorder, self.over = recorder, threading.Event()
        self.all = self.reader = self.looks = 0

    def run(self):
        while not self.over.wait(0.01):
            sums = {}
            for pid in [self.recorder.process.pid, *rig.descendants(self.recorder.process.pid)]:
                try:
                    text = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                name = re.search(r"^Name:\s+(\S+)", text, re.M)[1]
                found = re.search(r"^RssAnon:\s+(\d+) kB", text, re.M)
                if name.startswith("flyball") and found:
                    sums[name] = sums.get(name, 0) + int(found[1]) * 1024
            self.all = max(self.all, sum(sums.values()))
            self.reader = max(self.reader, sums.get("flyball-reader", 0))
            self.looks += bool(sums)


@pytest.fixture
def load(tmp_path):
    (tmp_path / "x.c").write_text("#include <stdio.h>\nint main(void) { return printf(\"x\"); }\n")
    (tmp_path / "x.rs").write_text("fn main() { println!(\"{}\", (0..9).map(|i| i * 2).sum::<u32>()); }\n")
    script = tmp_path / "load"
    lines = [line for program, line in PROGRAMS.items() if shutil.which(program)]
    script.write_text("cd \"$1\"\n" + "\n".join(f"{{ {line}; }} >/dev/null 2>&1" for line in lines) +
                      "\nrm -rf repo\ndate +%s.%N >end\n")
    return script


def record(load, tmp_path, symbol_cache):
    recorder = rig.Recorder(tmp_path, "-F", 499, "--", "sh", load, tmp_path, symbol_cache=symbol_cache)
    memory = Memory(recorder)
    memory.start()
    try:
        recorder.finish(seconds=300)
        took = time.time() - float((tmp_path / "end").read_text())
    finally:
        recorder.give_up()
        memory.over.set()
        memory.join()
    return recorder, memory, took


def test_large_programs_are_named_at_once_and_in_little_memory(load, tmp_path):
    cache = tmp_path / "symbols"
    for _ in ("from nothing", "again"):
        recorder, memory, took = record(load, tmp_path, cache)
        assert took < FACTOR * END_S, f"{took:.1f} s"
        unnamed = recorder.summary["stacks"]["unnamed"]
        assert unnamed["no_time"] == unnamed["read_timeout"] == unnamed["reader_failed"] == 0, unnamed
        assert memory.looks > 10
        if not rig.IS_ASAN:
            assert 0 < memory.all <= ALL_BYTES and memory.reader <= READER_BYTES, (memory.all, memory.reader)
            assert recorder.summary["cost"]["peak_anon_bytes"] <= ALL_BYTES, recorder.summary["cost"]
    # The reader gives a symbol file 0.6 s of CPU time and no more.
    for library in Path("/usr/lib/x86_64-linux-gnu").glob("libLLVM.so.19.*"):
        if shutil.which("clang-19"):
            assert any(cache.glob(f"{rig.build_id(library)}-*.sym")), list(cache.iterdir())


def test_a_second_recording_makes_nothing_anew(tmp_path, cases):
    cache = tmp_path / "symbols"
    rig.record_command(tmp_path, [cases / "deep", 5], "-F", 199, "-d", "1s", symbol_cache=cache)
    made = {path.name: path.stat().st_ino for path in cache.iterdir()}
    assert made and all(name.endswith("sym") for name in made), made
    recorder = rig.record_command(tmp_path, [cases / "deep", 5], "-F", 199, "-d", "1s", symbol_cache=cache)
    assert made.items() <= {path.name: path.stat().st_ino for path in cache.iterdir()}.items()
    assert recorder.folded.leaves("deep")["leaf_spin"] > 0


def test_names_of_a_debug_file_survive_it(tmp_path, cases):
    """The debug file is upgraded away while the old program is still there."""
    program, debug = tmp_path / "app", tmp_path / "app.debug"
    subprocess.run(["objcopy", "--only-keep-debug", cases / "deep", debug], check=True)
    subprocess.run(["strip", "-o", program, cases / "deep"], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", program], check=True)
    cache = tmp_path / "symbols"
    for is_there in (True, False):
        if not is_there:
            debug.unlink()
        recorder = rig.record_command(tmp_path, [program, 5], "-F", 199, "-d", "1s", symbol_cache=cache)
        assert recorder.folded.leaves("app")["leaf_spin"] > 0, recorder.why()


def test_without_a_cache(tmp_path, cases):
    recorder = rig.record_command(tmp_path, [cases / "deep", 5], "-F", 199, "-d", "1s", symbol_cache="none")
    assert recorder.folded.leaves("deep")["leaf_spin"] > 0, recorder.why()
    assert recorder.error_text() == "" or "symbol" not in recorder.error_text()


def test_a_cache_that_cannot_be_is_told_and_costs_no_name(tmp_path, cases):
    (tmp_path / "file").write_text("")
    recorder = rig.record_command(tmp_path, [cases / "deep", 5], "-F", 199, "-d", "1s", symbol_cache=tmp_path / "file" / "x")
    assert recorder.folded.leaves("deep")["leaf_spin"] > 0, recorder.why()
    assert "names are not kept for other recordings: cannot make" in Path(recorder.error_file.name).read_text()
