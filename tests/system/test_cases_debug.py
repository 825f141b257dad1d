# SPDX-License-Identifier: Apache-2.0
"""Separate debug files, from the machine and from debuginfod; field case 39."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rig

HZ = 199


@pytest.fixture(scope="session")
def split(cases, tmp_path_factory):
    """deep.g taken apart: a stripped program and its debug file."""
    out = tmp_path_factory.mktemp("split")
    shutil.copy(cases / "deep.g", out / "app")
    subprocess.run(["objcopy", "--only-keep-debug", out / "app", out / "app.debug"], check=True)
    subprocess.run(["strip", out / "app"], check=True)
    return out


def record(tmp_path, program, *args, env=None, arguments=("20",)):
    """Some time of a program that does not end by itself."""
    return rig.record_command(tmp_path, [program, *arguments], "-F", HZ, "-d", "1", *args,
                              env={**{k: v for k, v in os.environ.items() if k != "DEBUGINFOD_URLS"}, **(env or {})})


def share(recorder, comm, leaf="leaf_spin"):
    leaves = recorder.folded.leaves(comm)
    total = sum(ns for name, ns in leaves.items() if name)
    assert total > 0, recorder.why()
    return leaves[leaf] / total


def with_link(split, tmp_path, debug):
    shutil.copy(split / "app", tmp_path / "app")
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", tmp_path / "app"], check=True, cwd=tmp_path)


# ------------------------------------------------------------------------------------ of the machine


@pytest.mark.parametrize("where", ["beside", "below .debug"])
def test_debug_link(where, split, tmp_path):
    with_link(split, tmp_path, split / "app.debug")
    (tmp_path / ".debug").mkdir()
    shutil.copy(split / "app.debug", tmp_path / (".debug" if where == "below .debug" else "."))
    assert share(record(tmp_path, tmp_path / "app"), "app") >= 0.9


def test_debug_link_of_another_content(split, tmp_path):
    """One byte more and the CRC is not the link's."""
    with_link(split, tmp_path, split / "app.debug")
    (tmp_path / "app.debug").write_bytes((split / "app.debug").read_bytes() + b"x")
    recorder = record(tmp_path, tmp_path / "app")
    assert share(recorder, "app") == 0, recorder.why()
    assert recorder.summary["stacks"]["unnamed"]["no_symbol"] > 0


def test_debug_link_that_is_a_fifo(split, tmp_path):
    with_link(split, tmp_path, split / "app.debug")
    os.mkfifo(tmp_path / "app.debug")
    recorder = record(tmp_path, tmp_path / "app")
    assert share(recorder, "app") == 0 and recorder.summary["duration_ns"] < 4 * rig.SECOND, recorder.why()


def debug_path(program):
    found = rig.build_id(program)
    return Path("/usr/lib/debug/.build-id") / found[:2] / f"{found[2:]}.debug"


@pytest.mark.parametrize("which", ["right", "another build-id"])
def test_by_build_id(which, split, cases, tmp_path):
    path = debug_path(split / "app")
    made = [p for p in reversed(path.parents) if not p.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy(split / "app.debug" if which == "right" else cases / "deep.zlib", path)
        recorder = record(tmp_path, split / "app")
    finally:
        path.unlink()
        for directory in reversed(made):
            directory.rmdir()
    assert (share(recorder, "app") >= 0.9) == (which == "right"), recorder.why()


def test_below_another_root(split, cases, tmp_path, targets):
    """The debug file of a program in another root lies in that root."""
    root = tmp_path / "root"
    path = root / str(debug_path(cases / "sdeep"))[1:]
    path.parent.mkdir(parents=True)
    shutil.copy(cases / "sdeep", root / "app")
    subprocess.run(["objcopy", "--only-keep-debug", root / "app", path], check=True)
    subprocess.run(["strip", root / "app"], check=True)
    target = targets.start("chroot", root, "/app", 20)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
        rig.run_for(1)
    assert share(recorder, "app") >= 0.9, recorder.why()


# ------------------------------------------------------------------------------------ 39


def start_sink(targets, mode, *more):
    sink = targets.start(sys.executable, rig.TESTS / "cases" / "sink.py", mode, 0, *more)
    return sink, f"http://127.0.0.1:{int(sink.stdout.readline())}"


def requests_of(sink):
    os.set_blocking(sink.stdout.fileno(), False)
    return (sink.stdout.read() or b"").decode().splitlines()


def need_fetcher():
    if not (rig.FLYBALL.parent / "flyball-fetcher").exists():
        pytest.skip("flyball was built without libcurl")


def test_39_debuginfod(split, tmp_path, targets):
    """Debian's server names a stripped program; the next recording does without the server."""
    need_fetcher()
    if not shutil.which("debuginfod"):
        pytest.skip("no debuginfod on this machine")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    debug = tmp_path / "served"
    debug.mkdir()
    shutil.copy(split / "app.debug", debug)
    server = targets.start("debuginfod", "-p", port, "-d", ":memory:", "-F", debug, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    page = f"{url}/buildid/{rig.build_id(split / 'app')}/debuginfo"
    probe = ["curl", "-sf", "-o", "/dev/null", page]
    if not shutil.which("curl"):
        fetch = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])"
        probe = [sys.executable, "-c", fetch, page]
    rig.wait_for(lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0,
                 "debuginfod has the file", every=0.2)
    cache = tmp_path / "cache"
    recorder = record(tmp_path, split / "app", f"--debuginfod-cache={cache}", env={"DEBUGINFOD_URLS": url})
    assert share(recorder, "app") >= 0.9, recorder.why()
    missing = {why for why, n in recorder.summary["lines"]["missing"].items() if n}
    assert recorder.summary["lines"]["lined"] > 0 and missing <= {"no_lines"}, recorder.why()
    assert [p.name for p in cache.iterdir() if p.suffix == ".debug"] == [f"{rig.build_id(split / 'app')}.debug"]
    assert cache.stat().st_mode & 0o777 == 0o700
    rig.kill(server)
    recorder = record(tmp_path, split / "app", f"--debuginfod-cache={cache}", f"--debuginfod={url}")
    assert share(recorder, "app") >= 0.9, recorder.why()


def test_39_not_asked_for(split, tmp_path, targets):
    """No option, no variable: no server hears of us."""
    sink, _ = start_sink(targets, "404")
    recorder = record(tmp_path, split / "app")
    assert not requests_of(sink) and share(recorder, "app") == 0


@pytest.mark.parametrize("mode", ["hang", "slow", "404", "503", "drop", "endless", "garbage", "nobody listens"])
def test_39_server_in_trouble(mode, split, cases, tmp_path, targets):
    """The recording and its files are on time, and what has no name says why."""
    need_fetcher()
    if mode == "nobody listens":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url, sink = f"http://127.0.0.1:{free.getsockname()[1]}", None
    else:
        sink, url = start_sink(targets, mode)
    cache = tmp_path / "cache"
    asked, pids, ids = [], [], set()
    victim = tmp_path / f"sink{os.getpid()}"
    for i in range(6):  # stripped programs with build-ids of their own
        path = tmp_path / f"other{i}" if i else victim
        shutil.copy(split / "app", path)
        note = bytes.fromhex(rig.build_id(path))
        path.write_bytes(path.read_bytes().replace(note, bytes([i]) + note[1:]))
        ids.add(rig.build_id(path))
        pids.append(targets.start(path, 60).pid)

    def is_asked():
        """All are, where the server answers at all."""
        asked.extend(requests_of(sink))
        return ids <= {line.split("/")[2] for line in asked} if mode in ("404", "garbage") else asked

    rig.is_burning(pids[0])
    began = time.monotonic()
    # Only these: what else a machine runs may be more than a server is asked of in time.
    with rig.recording(tmp_path, *[a for pid in pids for a in ("-p", pid)], "-F", HZ, f"--debuginfod={url}",
                       f"--debuginfod-cache={cache}") as recorder:
        rig.run_for(1)
        if sink:
            rig.wait_for(is_asked, "the server is asked")
        stopped = time.monotonic()
    late = time.monotonic() - stopped
    # 2 s for servers, the rest is naming and writing on a machine that may be very busy; who waited for servers
    # would be there for a minute or for ever.
    assert late < (20 if rig.IS_ASAN else 10), f"{late} s after the end, {stopped - began} s of recording"
    assert share(recorder, victim.name) == 0, recorder.why()
    reasons = recorder.summary["stacks"]["unnamed"]
    # That a server has no such file, and bytes that are not the file, are no failure of it.
    if mode in ("404", "garbage"):
        assert reasons["no_symbol"] > 0, recorder.why()
        assert not reasons["debuginfod_failed"] and not reasons["file_invalid"], recorder.why()
    else:
        assert reasons["debuginfod_failed"] > 0, reasons
    if sink:
        asked.extend(requests_of(sink))
        assert asked and len(asked) == len(set(asked)), f"asked twice: {asked}"
        if mode == "404":
            again = tmp_path / "again"
            again.mkdir()
            record(again, split / "app", f"--debuginfod={url}", f"--debuginfod-cache={cache}")
            known = {line.split("/")[2] for line in asked}
            assert not [line for line in requests_of(sink) if line.split("/")[2] in known], "asked again within the hour"
    if cache.exists():
        assert not list(cache.glob("*.debug")), "kept what is not the file"
        assert sum(p.stat().st_size for p in cache.iterdir()) <= 512 << 20


def test_39_file_of_another_build_id(split, cases, tmp_path, targets):
    need_fetcher()
    sink, url = start_sink(targets, "ok", cases / "deep.zlib")
    cache = tmp_path / "cache"
    recorder = record(tmp_path, split / "app", f"--debuginfod={url}", f"--debuginfod-cache={cache}")
    assert len(requests_of(sink)) >= 1
    assert share(recorder, "app") == 0, recorder.why()
    assert not list(cache.glob("*.debug")) and (cache / f"{rig.build_id(split / 'app')}.none").exists()


def test_39_no_server_named(tmp_path):
    done = rig.flyball("record", "--debuginfod", "-d", "1", env={k: v for k, v in os.environ.items()
                                                                  if k != "DEBUGINFOD_URLS"})
    assert done.returncode == 2 and b"DEBUGINFOD_URLS" in done.stderr


def test_39_fetcher_has_no_rights(split, tmp_path, targets):
    need_fetcher()
    _, url = start_sink(targets, "hang")
    with rig.recording(tmp_path, "-a", "-F", HZ, f"--debuginfod={url}",
                       f"--debuginfod-cache={tmp_path / 'cache'}") as recorder:
        targets.start(split / "app", 20)

        def fetcher():
            return next((pid for pid in rig.descendants(recorder.main)
                         if Path(f"/proc/{pid}/comm").read_text().startswith("flyball-fetche")), None)

        pid = rig.wait_for(fetcher, "the fetcher runs")
        rig.wait_for(lambda: "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text(), "it is confined")
        status = Path(f"/proc/{pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status and "CapPrm:\t0000000000000000" in status
        assert "Uid:\t65534" in status and "NoNewPrivs:\t1" in status
        links = {os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{pid}/fd")}
        assert not {link for link in links if "bpf" in link or "perf" in link}, links
