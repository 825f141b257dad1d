# SPDX-License-Identifier: Apache-2.0
"""`flyball store`: what it says of a store that is whole, damaged, older, foreign or absent."""

import json
import os
import sqlite3
import subprocess

import pytest
import rig

BLOCKS = 12
FILL = rig.BUILD / "bench" / "bench_store"


@pytest.fixture(name="store")
def filled(tmp_path):
    blocks = tmp_path / "block"
    blocks.write_bytes(os.urandom(6000) + b"a frame." * 500)
    subprocess.run([FILL, tmp_path / "store", "1MiB", str(BLOCKS), blocks], check=True,
                   stdout=subprocess.DEVNULL)
    return tmp_path / "store"


def ask(store, *args, **options):
    return rig.flyball("store", "--store", store, *args, text=True, **options)


def as_json(store, *args):
    done = ask(store, *args, "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_info_and_list_say_what_is_there(store):
    info, = as_json(store, "info")
    assert info["blocks"] == {"windows": BLOCKS, "minutes": 0, "hours": 0} and info["windows"] == BLOCKS
    assert (info["first_id"], info["last_id"]) == (1, BLOCKS)
    assert info["quota_bytes"] == 1 << 20 > info["disk_bytes"] > info["stored_bytes"] > BLOCKS * 6000
    assert info["counts"]["appended"] == BLOCKS and info["counts"]["lost"] == 0
    rows = as_json(store, "list")
    assert [row["id"] for row in rows] == list(range(1, BLOCKS + 1))
    assert sum(row["raw_bytes"] for row in rows) == info["raw_bytes"] == BLOCKS * 10000
    assert rows[-1]["end_ns"] == info["end_ns"]
    text = ask(store).stdout
    assert f"{BLOCKS} windows" in text and "2023-11-14T22:13:20Z to 2023-11-14T22:15:20Z" in text
    assert len(ask(store, "list").stdout.splitlines()) == BLOCKS + 1


def test_check_finds_a_damaged_block(store):
    done = ask(store, "check")
    assert done.returncode == 0 and f"{BLOCKS} blocks were read, 0 of them damaged" in done.stdout
    with sqlite3.connect(store / "store.db") as db:
        packed, = db.execute("SELECT bytes FROM data WHERE id = 5").fetchone()
        middle = len(packed) // 2
        db.execute("UPDATE data SET bytes = ? WHERE id = 5",
                   (packed[:middle] + bytes([packed[middle] ^ 1]) + packed[middle + 1:],))
    db.close()
    done = ask(store, "check", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"blocks": BLOCKS, "damaged": 1, "faults": 0, "first_fault": None}


def test_check_finds_a_damaged_database(store):
    path = store / "store.db"
    with sqlite3.connect(path) as db:
        root, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'counts'").fetchone()
    db.close()
    with path.open("r+b") as f:
        f.seek((root - 1) * 4096)
        f.write(b"\xff" * 4096)
    done = ask(store, "check", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["faults"] > 0 and json.loads(done.stdout)["first_fault"]


@pytest.mark.parametrize("version, words", [(1, "older"), (99, "newer")])
def test_other_schema_is_said(store, version, words):
    with sqlite3.connect(store / "store.db") as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    done = ask(store)
    assert done.returncode == 3 and words in done.stderr and len(done.stderr.splitlines()) == 1


def test_absent_and_foreign_are_said_in_one_sentence(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        done = ask(folder)
        assert done.returncode == 4 and len(done.stderr.splitlines()) == 1
    (tmp_path / "store.db").write_bytes(b"no database\n" * 1000)
    done = ask(tmp_path)
    assert done.returncode == 4 and len(done.stderr.splitlines()) == 1
    assert ask(tmp_path, "mend").returncode == 2
    assert ask(tmp_path, "info", "list").returncode == 2
