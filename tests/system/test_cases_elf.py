# SPDX-License-Identifier: Apache-2.0
"""Files that lie, of field case 36 and beyond: damaged, sparse, linked in circles, changing while they are read."""

import os
import random
import re
import shutil
import struct
import subprocess
import threading

import pytest
import rig

HZ = 499


def leaf_shares(recorder, comm):
    leaves = recorder.folded.leaves(comm)
    total = sum(ns for name, ns in leaves.items() if name)
    return {name: ns / total for name, ns in leaves.items() if name} if total else {}


def warnings_about(recorder, path):
    return [line for line in recorder.error_text().splitlines() if str(path) in line and "no names from" in line]


# ------------------------------------------------------------------------------------ 36


def unloaded_bytes(data):
    """Positions in an ELF64 file that no segment loads, program headers and what finds them left out."""
    table, count = struct.unpack_from("<Q", data, 0x20)[0], struct.unpack_from("<H", data, 0x38)[0]
    loaded = [(0, 0x28), (0x34, 0x3A), (table, table + 56 * count)]
    for i in range(count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, table + 56 * i)
        if kind in (1, 3):  # PT_LOAD, PT_INTERP
            loaded.append((max(offset, 64), offset + size))
    free = sorted(set(range(len(data))).difference(*(range(a, b) for a, b in loaded)))
    assert len(free) > 1000, "nothing to damage"
    return free


def test_36_flipped_bytes(tmp_path, targets, cases):
    """1 to 64 bytes turned outside what is loaded: all run, each is named rightly or by offset, nothing is hurt."""
    data = (cases / "deep.g").read_bytes()
    free = unloaded_bytes(data)
    random.seed(36)
    started = {}
    count = 200 if rig.LONG else 24
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        for i in range(count):
            bad = bytearray(data)
            # Half of them in the headers and tables at the end, where it hurts most.
            for at in random.sample(free[-3000:] if i % 2 else free, random.choice((1, 4, 16, 64))):
                bad[at] ^= random.randrange(1, 256)
            path = tmp_path / f"flip{i:03}x"
            path.write_bytes(bad)
            path.chmod(0o755)
            started[path.name] = targets.start(path, 5)
            rig.is_burning(started[path.name].pid)
            if i >= 3:
                rig.kill(started[f"flip{i - 3:03}x"])
        good = targets.start(cases / "deep", 5)
        rig.is_burning(good.pid)
        rig.run_for(0.3)
        rig.kill(good)
    right = 0
    for name in started:
        leaves = leaf_shares(recorder, name)
        # A name may have been what was turned: never that of another function.
        assert leaves and not {"main", "rec", "_start"} & {n for n, share in leaves.items() if share > 0.2}, (name, leaves)
        right += leaves.get("leaf_spin", 0) > 0.5
    assert right >= count / 3, recorder.why()
    assert leaf_shares(recorder, "deep")["leaf_spin"] >= 0.9, recorder.why()
    assert recorder.summary["helpers"]["reader_restarts"] == 0, recorder.why()


@pytest.mark.parametrize("name", ["deep.truncsym", "deep.hugesym", "deep.badstr"])
def test_36_bad_file_is_told_once(name, tmp_path, targets, cases):
    """However many of its processes and however long."""
    both = [targets.start(cases / name, 5), targets.start(cases / name, 20)]
    for target in both:
        rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", ",".join(str(t.pid) for t in both), "-F", HZ) as recorder:
        rig.run_for(1.5)
    told = warnings_about(recorder, cases / name)
    assert len(told) == 1 and "outside the file" in told[0], recorder.error_text()
    assert recorder.summary["stacks"]["unnamed"]["file_invalid"] > 0


def test_36_many_bad_files_are_not_all_told(tmp_path, targets, cases):
    """A user can bring any number of them: the log stays short."""
    data = (cases / "deep.truncsym").read_bytes()
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        for i in range(12):
            path = tmp_path / f"bad{i:02}"
            path.write_bytes(data[:-1] + bytes([i]))
            path.chmod(0o755)
            target = targets.start(path, 5)
            rig.is_burning(target.pid)
            rig.kill(target)
    assert len(warnings_about(recorder, tmp_path)) == 8, recorder.error_text()
    assert recorder.error_text().count("are not listed here") == 1


# ------------------------------------------------------------------------------------ larger than anybody can read

HUGE = 4 << 30


class Elf:
    """A copy of an ELF64 file whose section headers can be changed; huge contents are holes."""

    def __init__(self, source, target):
        shutil.copy(source, target)
        self.path = target
        self.data = bytearray(target.read_bytes())
        self.table, self.count = struct.unpack_from("<Q", self.data, 0x28)[0], struct.unpack_from("<H", self.data, 0x3C)[0]
        names = self.header(struct.unpack_from("<H", self.data, 0x3E)[0])
        self.by_name = {}
        for i in range(self.count):
            at = names[4] + self.header(i)[0]
            self.by_name[self.data[at:self.data.index(0, at)].decode()] = i
        self.end = (len(self.data) + 4095) & ~4095
        self.writes = []

    def header(self, i):
        """name, type, flags, addr, offset, size, link, info, align, entry"""
        return struct.unpack_from("<IIQQQQIIQQ", self.data, self.table + 64 * i)

    def contents(self, name):
        header = self.header(self.by_name[name])
        return bytes(self.data[header[4]:header[4] + header[5]])

    def place(self, name, size, contents=b""):
        """Puts a section behind all others: contents, then zeros up to size."""
        at = self.table + 64 * self.by_name[name]
        struct.pack_into("<QQ", self.data, at + 24, self.end, size)
        self.writes.append((self.end, contents))
        self.end += (size + 4095) & ~4095

    def save(self):
        with open(self.path, "wb") as file:
            file.write(self.data)
            for at, contents in self.writes:
                file.seek(at)
                file.write(contents)
            file.truncate(self.end)
        self.path.chmod(0o755)
        return self.path


def with_section(cases, tmp_path, program, name):
    """The program with a section more, of no contents to speak of."""
    (tmp_path / "more.bin").write_bytes(b"more")
    out = tmp_path / "with-section"
    subprocess.run(["objcopy", f"--add-section={name}=more.bin", cases / program, out], check=True, cwd=tmp_path)
    return out


def notes_segment(elf):
    """The program header of the notes now covers a hole: a note of no bytes, every 12 bytes."""
    headers = struct.unpack_from("<Q", elf.data, 0x20)[0]
    for i in range(struct.unpack_from("<H", elf.data, 0x38)[0]):
        at = headers + 56 * i
        if struct.unpack_from("<I", elf.data, at)[0] == 4:
            struct.pack_into("<Q", elf.data, at + 8, elf.end)
            struct.pack_into("<Q", elf.data, at + 32, HUGE)
    elf.end += HUGE


def huge(kind, cases, tmp_path):
    """(path, whether its functions can still be named)"""
    source, named = cases / "deep.g", True
    if kind in (".gnu_debugdata", ".gopclntab"):
        source = with_section(cases, tmp_path, "deep.stripped" if kind == ".gnu_debugdata" else "deep.g", kind)
        named = kind == ".gopclntab"
    elf = Elf(source, tmp_path / f"huge{os.getpid()}")
    if kind == "symbols of zeros":
        elf.place(".symtab", HUGE)
        named = False
    elif kind == "symbols that go on":
        elf.place(".symtab", HUGE, elf.contents(".symtab"))
        named = None  # as far as they are read
    elif kind == "names without end":
        elf.place(".strtab", HUGE, elf.contents(".strtab"))
    elif kind == "one name of 1 GiB":
        names = elf.contents(".strtab").replace(b"\0leaf_spin\0", b"\0xeaf_spin\0")
        symbols = bytearray(elf.contents(".symtab"))
        for at in range(0, len(symbols), 24):
            if names[struct.unpack_from("<I", symbols, at)[0]:].startswith(b"xeaf_spin\0"):
                struct.pack_into("<I", symbols, at, len(names))
        elf.place(".symtab", len(symbols), bytes(symbols))
        elf.place(".strtab", 1 << 30, names + b"A" * (4 << 20))
        named = None
    elif kind == "sections":
        elf.place(".comment", 0)  # a table of 2^32 of them, told in the first
        table, size = elf.end, 64 << 20
        struct.pack_into("<Q", elf.data, 0x28, table)
        struct.pack_into("<H", elf.data, 0x3C, 0)
        first = bytearray(64)
        struct.pack_into("<Q", first, 32, size // 64)
        elf.writes.append((table, bytes(first)))
        elf.end += size
        named = False
    elif kind == "notes":
        notes_segment(elf)
    elif kind == ".gopclntab":
        elf.place(kind, HUGE, struct.pack("<IBBBBQQQQQQQQ", 0xFFFFFFF1, 0, 0, 1, 8, 3 << 20, 9, 0x1050, 72, 80, 88, 96, 104))
    else:
        elf.place(kind, HUGE, elf.contents(kind))
    return elf.save(), named


HUGE_KINDS = ["symbols of zeros", "symbols that go on", "names without end", "one name of 1 GiB", "sections", "notes",
              ".gopclntab", ".gnu_debugdata", ".rela.plt", ".debug_info", ".debug_line", ".debug_str", ".debug_aranges"]


@pytest.mark.parametrize("kind", HUGE_KINDS)
def test_sections_of_4_gib(kind, tmp_path, targets, cases):
    """Sparse, so anybody can make them: bounded in time and memory, and no other program pays."""
    path, named = huge(kind, cases, tmp_path)
    bad = targets.start(path, 20)
    rig.is_burning(bad.pid)
    with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
        good = targets.start(cases / "npdeep", 5)
        rig.is_burning(good.pid)
        rig.run_for(1)
        rig.kill(good)
    for target in (bad, good):
        rig.kill(target)
    path.unlink()
    leaves = leaf_shares(recorder, path.name)
    offsets = sum(share for name, share in leaves.items() if name.startswith(f"{path.name}+0x"))
    assert leaves.get("leaf_spin", 0) + offsets >= 0.95 or named is None, leaves
    if named is not None:
        assert (leaves.get("leaf_spin", 0) >= 0.9) == named, recorder.why()
    assert leaf_shares(recorder, "npdeep")["leaf_spin"] >= 0.9, recorder.why()
    # Ten times the time of the recording is what a reader without limits would take.
    assert recorder.summary["duration_ns"] < 5 * rig.SECOND, recorder.why()
    assert recorder.summary["helpers"]["reader_restarts"] <= 1, recorder.why()
    assert rig.IS_ASAN or recorder.summary["cost"]["peak_anon_bytes"] < 96 << 20, recorder.why()
    # Reported: names by their reason, lines by theirs.
    unnamed = recorder.summary["stacks"]["unnamed"]
    if named is False:
        assert unnamed["file_invalid"] + unnamed["read_timeout"] + unnamed["no_symbol"] > 0, unnamed
    if kind.startswith(".debug"):
        assert recorder.summary["lines"]["missing"]["lines_limit"] > 0, recorder.summary["lines"]


def test_debug_file_of_4_gib(tmp_path, targets, cases):
    """A link to a sparse file, whose CRC nobody is to compute."""
    app = tmp_path / f"app{os.getpid()}"
    shutil.copy(cases / "deep.g", app)
    debug = tmp_path / "app.debug"
    subprocess.run(["objcopy", "--only-keep-debug", app, debug], check=True)
    subprocess.run(["strip", app], check=True)
    subprocess.run(["objcopy", "--add-gnu-debuglink=app.debug", app], check=True, cwd=tmp_path)
    os.truncate(debug, HUGE)
    target = targets.start(app, 5)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
        rig.run_for(1)
    debug.unlink()
    assert not leaf_shares(recorder, app.name).get("leaf_spin"), recorder.why()
    assert recorder.summary["stacks"]["unnamed"]["no_symbol"] > 0 and recorder.summary["helpers"]["reader_restarts"] == 0
    assert recorder.summary["cost"]["own_user_ns"] < rig.SECOND and recorder.summary["duration_ns"] < 4 * rig.SECOND


# ------------------------------------------------------------------------------------ links in circles


def linked(path, cases, name):
    """A stripped program that links to a debug file of this name."""
    shutil.copy(cases / "deep.g", path)
    subprocess.run(["strip", path], check=True)
    other = path.parent / name
    other.write_bytes(b"x") if not other.exists() else None
    subprocess.run(["objcopy", f"--add-gnu-debuglink={other}", path], check=True)
    if other.stat().st_size == 1:
        other.unlink()
    return path


@pytest.mark.parametrize("how", ["to itself", "to its own link", "to a link to itself", "a directory of links",
                                 "to each other", "by build-id to itself"])
def test_links_in_circles(how, tmp_path, targets, cases):
    app = tmp_path / f"circle{os.getpid()}"
    below = tmp_path / ".debug"
    below.mkdir()
    by_id = None
    linked(app, cases, app.name if how in ("to itself", "to its own link") else "loop.debug")
    if how == "to its own link":
        (below / app.name).symlink_to(app)
    elif how == "to a link to itself":
        (tmp_path / "loop.debug").symlink_to("loop.debug")
        (below / "loop.debug").symlink_to(below / "loop.debug")
    elif how == "a directory of links":
        below.rmdir()
        below.symlink_to(".debug/.debug")
    elif how == "to each other":
        linked(tmp_path / "loop.debug", cases, app.name)
    elif how == "by build-id to itself":
        identity = rig.build_id(app)
        by_id = rig.Path("/usr/lib/debug/.build-id") / identity[:2] / f"{identity[2:]}.debug"
        by_id.parent.mkdir(parents=True, exist_ok=True)
        by_id.symlink_to(app)
    target = targets.start(app, 5)
    rig.is_burning(target.pid)
    try:
        with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
            rig.run_for(0.7)
    finally:
        if by_id:
            by_id.unlink()
    leaves = leaf_shares(recorder, app.name)
    assert all(name.startswith(f"{app.name}+0x") for name, share in leaves.items() if share > 0.2) and leaves, leaves
    assert recorder.summary["stacks"]["unnamed"]["no_symbol"] > 0, recorder.why()
    helpers = recorder.summary["helpers"]
    assert helpers["reader_restarts"] == helpers["opener_restarts"] == helpers["stuck"] == 0
    assert recorder.summary["duration_ns"] < 3 * rig.SECOND


# ------------------------------------------------------------------------------------ changing while they are read


def test_library_that_changes_while_it_is_read(tmp_path, targets, cases):
    """Its code stays, what lies behind it comes and goes: headers, symbols and lines are cut or another's each time."""
    source, library = tmp_path / "many.c", tmp_path / "liba.so"
    # Each sample falls on another instruction, so that names and lines are asked for all the time.
    source.write_text("volatile unsigned long s;\nvoid alpha_work(long n) { for (long i = 0; i < n; i++) {\n" +
                      "s += s * 3 + 1;\n" * 3000 + "} }\n" +
                      "".join(f"int f{i}(int a) {{ return a * {i} + 1; }}\n" for i in range(500)))
    subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id=none", "-o", library, source], check=True)
    whole = library.read_bytes()
    loads = re.findall(r"LOAD +0x(\w+) 0x\w+ 0x\w+ 0x(\w+)", subprocess.run(
        ["readelf", "-lW", library], capture_output=True, text=True, check=True).stdout)
    kept = max(int(offset, 16) + int(size, 16) for offset, size in loads) + 4095 & ~4095
    assert len(whole) > kept + 20000, "there is nothing behind its segments"
    seconds = 40 if rig.LONG else 4  # lines are asked for every 3 s
    rng = random.Random(7)
    stop = threading.Event()
    rounds = [0]

    def shake():
        with open(library, "r+b", buffering=0) as file:
            while not stop.is_set():
                file.truncate(rng.choice((kept, rng.randrange(kept, len(whole)))))
                noise = bytearray(whole[kept:])
                for _ in range(rng.choice((0, 1, 40, 4000))):
                    noise[rng.randrange(len(noise))] = rng.randrange(256)
                file.seek(kept)
                file.write(noise)
                rounds[0] += 1

    program = tmp_path / f"shaken{os.getpid()}"
    shutil.copy(cases / "dl", program)
    target = targets.start(program, 2000, cwd=tmp_path)
    rig.wait_for(lambda: str(library) in rig.Path(f"/proc/{target.pid}/maps").read_text(), "the library is mapped")
    good = targets.start(cases / "npdeep", 5)
    rig.is_burning(good.pid)
    shaker = threading.Thread(target=shake)
    shaker.start()
    try:
        with rig.recording(tmp_path, "-p", f"{target.pid},{good.pid}", "-F", HZ) as recorder:
            rig.run_for(seconds)
    finally:
        stop.set()
        shaker.join()
    assert rounds[0] > 100
    leaves = leaf_shares(recorder, program.name)
    assert leaves, recorder.why()
    assert leaf_shares(recorder, "npdeep")["leaf_spin"] >= 0.9, recorder.why()
    assert recorder.summary["duration_ns"] < (seconds + 4) * rig.SECOND, recorder.why()
    helpers = recorder.summary["helpers"]
    assert helpers["reader_restarts"] <= seconds / 2 and not helpers["stuck"], helpers
    assert rig.IS_ASAN or recorder.summary["cost"]["peak_anon_bytes"] < 96 << 20, recorder.why()
    assert len(warnings_about(recorder, library)) <= 1
