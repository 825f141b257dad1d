# SPDX-License-Identifier: Apache-2.0
"""Field cases of kind `jit`: code without a file, named by the perf map of its process. 27, 29, and real runtimes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import rig

HZ = 199
FIRST, SECOND = "first version: with spaces <T>_[j]", "second version_[j]"


def jit_leaves(recorder, comm):
    """Shares of the user time of a comm, by leaf."""
    leaves = recorder.folded.leaves(comm)
    total = sum(ns for name, ns in leaves.items() if name)
    assert total > 0, recorder.why()
    return {name: ns / total for name, ns in leaves.items()}


# ------------------------------------------------------------------------------------ 27


@pytest.mark.parametrize("decoy", [False, True])
def test_27_map_in_another_namespace(decoy, tmp_path, targets, cases):
    """The inner PID, below the inner root; the host's file for the host's PID is another's."""
    script = 'mount -t tmpfs t /tmp && exec "$0"'
    jit = Path("/var/tmp") / f"flyball-jit-{os.getpid()}"  # /tmp is covered in there
    shutil.copy(cases / "jit", jit)
    host = None
    try:
        target = targets.start("unshare", "-pfm", "--mount-proc", "sh", "-c", script, jit)
        pid = rig.wait_for(lambda: next((p for p in rig.descendants(target.pid)
                                         if Path(f"/proc/{p}/comm").read_text().strip() == jit.name[:15]), 0),
                           "the inner program runs")
        rig.is_burning(pid)
        if decoy:
            host = Path(f"/tmp/perf-{pid}.map")
            address = next(line.split("-")[0] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                           if "rwxp" in line)
            host.write_text(f"{address} 1000 decoy\n")
        with rig.recording(tmp_path, "-p", pid, "-F", HZ) as recorder:
            rig.run_for(1)
    finally:
        jit.unlink()
        if host:
            host.unlink()
    shares = jit_leaves(recorder, jit.name[:15])
    assert shares.get(FIRST, 0) + shares.get(SECOND, 0) >= 0.95, recorder.why()


def test_27_owner(tmp_path, targets, cases):
    """A map that another user put there is not believed."""
    shutil.copy(cases / "jit", tmp_path / "jit")
    os.chmod(tmp_path, 0o755)
    target = targets.start(tmp_path / "jit", "/dev/null")
    map_file = Path(f"/tmp/perf-{target.pid}.map")
    map_file.write_text("0 7fffffffffff evil\n")
    os.chown(map_file, 65534, 65534)
    rig.is_burning(target.pid)
    try:
        with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
            rig.run_for(0.7)
    finally:
        map_file.unlink()
    assert not any("evil" in line.text for line in recorder.folded), recorder.why()
    assert recorder.summary["stacks"]["unnamed"]["map_refused"] > 0, recorder.why()


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_27_no_plain_file(kind, tmp_path, targets, cases):
    target = targets.start(cases / "jit", tmp_path / "elsewhere")
    map_file = Path(f"/tmp/perf-{target.pid}.map")
    if kind == "fifo":
        os.mkfifo(map_file)
    elif kind == "link":
        map_file.symlink_to(tmp_path / "elsewhere")
    else:
        map_file.mkdir()
    rig.is_burning(target.pid)
    try:
        with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
            rig.run_for(0.7)
    finally:
        map_file.rmdir() if kind == "directory" else map_file.unlink()
    assert recorder.summary["stacks"]["unnamed"]["map_refused"] > 0, recorder.why()
    assert not any("version" in line.text for line in recorder.folded), recorder.why()


# ------------------------------------------------------------------------------------ 29


@pytest.mark.parametrize("form", ["%lx %x %s\n", "0x%lx 0x%x %s\n", "0x%016lx 0x%016x %s\r\n",
                                  "garbage\n%lx %x %s\n\nffffffffffffff00 1000 wraps\n", "%lx %x %s"])
def test_29_forms(form, tmp_path, targets, cases):
    """The last one has no end of line; what a second line would add to it is none."""
    target = targets.start(cases / "jit", "/dev/null")
    rig.kill(target)
    target = targets.start("sh", "-c", 'exec "$0" /tmp/perf-$$.map "$1"', cases / "jit", form)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", HZ) as recorder:
        rig.run_for(1)
    Path(f"/tmp/perf-{target.pid}.map").unlink()
    assert jit_leaves(recorder, "jit").get(FIRST, 0) >= 0.95, recorder.why()


def test_29_later_code_at_an_address(tmp_path, cases):
    """Both names, each for its time: the code was replaced after half of it."""
    recorder = rig.record_command(tmp_path, [cases / "jit"], "-F", HZ)
    shares = jit_leaves(recorder, "jit")
    assert shares[FIRST] + shares[SECOND] >= 0.9, recorder.why()
    # 3 s each, of wall time; a look is made every 0.5 s.
    assert min(shares[FIRST], shares[SECOND]) >= 0.15, recorder.why()


def test_29_two_processes_at_one_address(tmp_path, targets, cases):
    """Without address randomization both have their code at one place."""
    names = ("alpha", "bravo")
    started = []
    for name in names:
        target = targets.start("setarch", "-R", cases / "jit", "/dev/null")
        rig.is_burning(target.pid)
        address = next(line.split("-")[0] for line in Path(f"/proc/{target.pid}/maps").read_text().splitlines()
                       if "rwxp" in line)
        Path(f"/tmp/perf-{target.pid}.map").write_text(f"{address} 1000 {name}\n")
        started.append((target.pid, address))
    assert started[0][1] == started[1][1]
    with rig.recording(tmp_path, "-p", ",".join(str(pid) for pid, _ in started), "-F", HZ) as recorder:
        rig.run_for(1.5)
    for (pid, _), name, other in zip(started, names, reversed(names)):
        Path(f"/tmp/perf-{pid}.map").unlink()
        seen = {frame for s in recorder.pprof.samples if s.labels["pid"] == pid for frame in s.names}
        assert any(name in frame for frame in seen) and not any(other in frame for frame in seen), seen


# ------------------------------------------------------------------------------------ runtimes


def need(program):
    path = shutil.which(program)
    if not path:
        pytest.skip(f"no {program} on this machine")
    return path


def record_runtime(tmp_path, *command, hz=HZ):
    """A runtime that ends by itself after some 2 s."""
    return rig.record_command(tmp_path, command, "-F", hz, seconds=3 * rig.PATIENCE)


def heaviest(recorder):
    return "\n".join(f"{ns / 1e6:8.0f} ms {name}" for name, ns in recorder.folded.leaves().most_common(15))


def share_of(recorder, word, mark="_[j]"):
    """Of all user time, what has a frame with this word and mark anywhere."""
    user = [line for line in recorder.folded if line.user]
    hit = sum(line.value for line in user if any(word in f and f.endswith(mark) for f in line.user))
    return hit / sum(line.value for line in user)


def clean_maps(before):
    for path in set(Path("/tmp").glob("perf-*.map")) - before:
        path.unlink()


@pytest.fixture
def maps_cleaned():
    before = set(Path("/tmp").glob("perf-*.map"))
    yield
    clean_maps(before)


JS = """
function hotLeaf(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
function middleOne(n) { let s = 0; for (let i = 0; i < 50; i++) s ^= hotLeaf(n); return s; }
const end = Date.now() + 2500; let x = 0;
while (Date.now() < end) x ^= middleOne(20000);
console.log(x);
"""


def test_node(tmp_path, maps_cleaned):
    script = tmp_path / "work.js"
    script.write_text(JS)
    recorder = record_runtime(tmp_path, need("node"), "--perf-basic-prof", "--no-logfile-per-isolate",
                              f"--logfile={tmp_path}/v8.log", script)
    # The optimizer may put one into the other.
    both = share_of(recorder, "work.js:2:") + share_of(recorder, "work.js:3:")
    assert both >= 0.6, heaviest(recorder)


JAVA = """
public class Work {
    static int hotLeaf(int n) { int s = 0; for (int i = 0; i < n; i++) s = s * 31 + (i ^ s >>> 3); return s; }
    public static void main(String[] a) {
        long end = System.nanoTime() + 2500000000L; int x = 0;
        while (System.nanoTime() < end) x ^= hotLeaf(20000);
        System.out.println(x);
    }
}
"""


@pytest.mark.parametrize("how", ["at exit", "by jcmd"])
def test_java(how, tmp_path, targets, maps_cleaned):
    """At exit the map is the process's last act."""
    java = need("java")
    (tmp_path / "Work.java").write_text(JAVA)
    if not shutil.which("javac"):
        pytest.skip("no javac on this machine")
    subprocess.run(["javac", "-d", tmp_path, tmp_path / "Work.java"], check=True, capture_output=True)
    flags = ["-XX:+PreserveFramePointer", "-Xshare:auto", "-cp", tmp_path]
    if how == "at exit":
        recorder = record_runtime(tmp_path, java, "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", *flags,
                                  "Work")
    else:
        with rig.recording(tmp_path, "-a", "-F", HZ) as recorder:
            target = targets.start(java, *flags, "Work")
            rig.is_burning(target.pid)
            rig.run_for(1)
            subprocess.run(["jcmd", str(target.pid), "Compiler.perfmap"], check=True, capture_output=True)
            target.wait(timeout=rig.PATIENCE)
    named = [line for line in recorder.folded if any("hotLeaf" in f for f in line.user)]
    work = [line for line in recorder.folded if line.root == "java" and line.user]
    assert sum(line.value for line in named) >= 0.4 * sum(line.value for line in work), heaviest(recorder)


PYTHON = """
import time
def leaf_one():
    pass
def middle_one():
    leaf_one(); leaf_one(); leaf_one(); leaf_one(); leaf_one(); leaf_one()
end = time.monotonic() + 2.5
while time.monotonic() < end:
    for _ in range(1000):
        middle_one()
"""


def find_python():
    """A CPython that writes perf maps: 3.12 or newer on Linux."""
    found = [shutil.which("python3"), *map(str, sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python3")))]
    for path in filter(None, found):
        probe = "import sys; sys.activate_stack_trampoline('perf')"
        if subprocess.run([path, "-c", probe], capture_output=True, check=False).returncode == 0:
            return path
    return pytest.skip("no CPython with -X perf on this machine")


def test_cpython(tmp_path, maps_cleaned):
    script = tmp_path / "work.py"
    script.write_text(PYTHON)
    recorder = record_runtime(tmp_path, find_python(), "-X", "perf", script, hz=1999)
    # Each call runs through a trampoline of some instructions, and CPython keeps no frame pointers by itself:
    # what is sampled inside the trampolines is there in any case.
    assert share_of(recorder, f"py::leaf_one:{script}") > 0, heaviest(recorder)
