# SPDX-License-Identifier: Apache-2.0
"""Files that lie, of field case 36 and beyond: damaged, sparse, linked in circles, changing while they are read."""

import random
import struct

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
