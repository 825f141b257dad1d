# SPDX-License-Identifier: Apache-2.0
"""What is recorded: a command, processes, a cgroup, everything; and what the command gets."""

import os
import signal
import subprocess
import time

import pytest
import rig

# ------------------------------------------------------------------------------------ -- COMMAND


def run(tmp_path, *command, args=(), seconds=rig.PATIENCE, **options):
    return rig.flyball("record", "-o", tmp_path / "x.folded", *args, "--", *command, seconds=seconds, **options)


@pytest.mark.parametrize("status", [0, 1, 3, 77, 255])
def test_exit_status_is_passed_on(status, tmp_path):
    assert run(tmp_path, "sh", "-c", f"exit {status}").returncode == status


def test_death_by_signal_is_passed_on(tmp_path):
    assert run(tmp_path, "sh", "-c", "kill -USR1 $$").returncode == 128 + signal.SIGUSR1


def test_exit_status_is_in_the_summary(tmp_path):
    recorder = rig.Recorder(tmp_path, "--", "sh", "-c", "exit 42")
    try:
        recorder.finish(status=42)
    finally:
        recorder.give_up()
    assert recorder.summary["exit_status"] == 42
    assert recorder.summary["command"] == ["sh", "-c", "exit 42"]


def test_command_that_does_not_exist(tmp_path):
    done = run(tmp_path, "/nonexistent/program")
    assert done.returncode == 127
    lines = done.stderr.decode().strip().splitlines()
    assert len(lines) == 1 and "/nonexistent/program" in lines[0], lines
    assert list(tmp_path.iterdir()) == [], "something was written for a command that never ran"


def test_command_that_is_not_executable(tmp_path):
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    done = run(tmp_path, script)
    assert done.returncode == 126 and len(done.stderr.decode().strip().splitlines()) == 1, done
    assert run(tmp_path, tmp_path).returncode == 126


def test_stdin_stdout_and_stderr_are_the_commands(tmp_path):
    done = run(tmp_path, "sh", "-c", "cat; echo to-stderr >&2", input=b"through stdin\n", stdin=None)
    assert done.stdout == b"through stdin\n"
    assert b"to-stderr\n" in done.stderr


def test_command_keeps_descriptors_and_environment(tmp_path):
    """Nothing of ours leaks into it, and nothing of its own is lost."""
    read_end, write_end = os.pipe()
    script = f"ls -l /proc/self/fd >&{write_end}; printenv FLYBALL_TEST >&{write_end}; trap >&{write_end}"
    done = run(tmp_path, "bash", "-c", script, pass_fds=[write_end], env={**os.environ, "FLYBALL_TEST": "kept"})
    os.close(write_end)
    text = os.read(read_end, 65536).decode()
    os.close(read_end)
    assert done.returncode == 0 and "kept" in text, done
    assert "bpf" not in text and "perf_event" not in text and "memfd" not in text, text


def test_command_gets_default_signals(tmp_path):
    """Blocked and ignored signals are as flyball found them."""
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status"
    plain = subprocess.run(["sh", "-c", script], capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout
    done = run(tmp_path, "sh", "-c", script)
    assert done.stdout == plain


def test_first_instruction_to_last(tmp_path, workloads):
    """A program of 20 ms: all of its CPU time, nothing but its."""
    recorder = rig.record_command(tmp_path, [workloads / "runner", "-n", 20, workloads / "brief20"], "-F", 999)
    truth = rig.json.loads(recorder.command_out)
    brief = sum(line.value for line in recorder.folded.of("brief20"))
    assert abs(brief - 20 * 20e6) <= 0.1 * 20 * 20e6, (brief, truth)
    assert {line.root for line in recorder.folded} <= {"sh", "runner", "brief20", "flyball"}, recorder.why()


def test_all_descendants_are_followed(tmp_path, workloads):
    """Children, grandchildren, and those whose parent is gone."""
    split = workloads / "split"
    script = f'"{split}" 1 >/dev/null & (sh -c \'"{split}" -p 1 >/dev/null &\'; exit 0); sleep 2.2'
    recorder = rig.record_command(tmp_path, ["sh", "-c", script], "-F", 199)
    pids = {pid for pid, ns in recorder.pprof.by("pid").items() if ns > 0.05 * rig.SECOND}
    assert len(pids) == 3, recorder.why()


def test_duration_ends_the_command(tmp_path):
    begin = time.monotonic()
    done = run(tmp_path, "sleep", "600", args=["-d", "500ms"])
    assert done.returncode == 0, done.stderr
    assert 0.4 < time.monotonic() - begin < 10
    assert (tmp_path / "x.folded").exists()


def test_ctrl_c_reaches_the_command_and_ends_the_recording(tmp_path, workloads):
    """As a terminal does it: the whole foreground group gets SIGINT."""
    recorder = rig.Recorder(tmp_path, "--", workloads / "split", 600, json_summary=False, start_new_session=True)
    try:
        recorder.wait_sampling()
        child = rig.wait_for(lambda: [p for p in rig.descendants(recorder.main)
                                      if os.readlink(f"/proc/{p}/exe").endswith("/split")], "the command runs")
        rig.is_burning(child[0])
        os.killpg(recorder.process.pid, signal.SIGINT)
        recorder.finish(status=0)
    finally:
        recorder.give_up()
    assert recorder.folded.leaves("split")["work_a"] > 0


# ------------------------------------------------------------------------------------ -p


def test_several_pids(tmp_path, targets, workloads):
    three = [targets.start(workloads / "split", 600) for _ in range(3)]
    for target in three:
        rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", f"{three[0].pid},{three[1].pid}", "-F", 199) as recorder:
        rig.run_for(1.5)
    assert set(recorder.pprof.by("pid")) == {three[0].pid, three[1].pid}
    assert recorder.kind["filtered"] > 0


def test_pids_given_one_by_one(tmp_path, targets, workloads):
    two = [targets.start(workloads / "split", 600) for _ in range(2)]
    for target in two:
        rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", two[0].pid, "-p", two[1].pid, "-F", 199) as recorder:
        rig.run_for(1)
    assert set(recorder.pprof.by("pid")) == {t.pid for t in two}


def test_children_of_a_pid_are_followed(tmp_path, targets, cases):
    """Those it starts after we came, and theirs."""
    parent = targets.start(cases / "churn", 600, cases / "brief")
    rig.wait_for(lambda: rig.descendants(parent.pid), "churn runs", every=0.001)
    with rig.recording(tmp_path, "-p", parent.pid, "-F", 499) as recorder:
        rig.run_for(1.5)
    found = recorder.pprof.by("pid")
    assert len(found) > 5 and recorder.folded.leaves("brief")["brief_work"] >= 0.7 * recorder.pprof.total(), recorder.why()


def test_all_threads_of_a_pid(tmp_path, targets, workloads):
    """Also those that were there before us."""
    target = targets.start(workloads / "split", "-t", 600)
    rig.wait_for(lambda: len(rig.threads(target.pid)) == 2, "both threads run")
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", 199) as recorder:
        rig.run_for(1.5)
    tids = recorder.pprof.by("tid")
    assert set(tids) == set(rig.threads(target.pid)), tids


def test_recording_ends_with_its_process(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 1.5)
    rig.is_burning(target.pid)
    recorder = rig.Recorder(tmp_path, "-p", target.pid)
    try:
        recorder.finish()
    finally:
        recorder.give_up()
    assert recorder.folded.total > 0


def test_pids_are_those_of_the_callers_namespace(tmp_path, workloads):
    """In a PID namespace: -p 3 is its 3. Handled, or refused with a sentence."""
    script = ('"$1" 600 >/dev/null & p=$!; "$0" record -p $p -d 1 -o "$2"; status=$?; kill $p; exit $status')
    done = subprocess.run(["unshare", "-pf", "--mount-proc", "sh", "-c", script, rig.FLYBALL, workloads / "split",
                           tmp_path / "x.folded"], capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    if done.returncode:
        assert done.returncode == 3 and "namespace" in done.stderr, done
        return
    leaves = rig.Folded((tmp_path / "x.folded").read_bytes()).leaves("split")
    assert leaves["work_a"] > 0, leaves


# ------------------------------------------------------------------------------------ --cgroup


def test_cgroup(tmp_path, targets, workloads):
    """Those in it and below, also who comes later; nobody else."""
    root = rig.unified_cgroup() / "flyball-test-target"
    with rig.cgroup(root / "below") as below:
        inside, lower, outside, later = (targets.start(workloads / "split", 600) for _ in range(4))
        for target in (inside, lower, outside, later):
            rig.is_burning(target.pid)
        (root / "cgroup.procs").write_text(str(inside.pid))
        (below / "cgroup.procs").write_text(str(lower.pid))
        with rig.recording(tmp_path, "--cgroup", root, "-F", 199) as recorder:
            rig.run_for(1)
            (root / "cgroup.procs").write_text(str(later.pid))
            rig.run_for(1)
        for target in (inside, lower, outside, later):
            rig.kill(target)
    assert set(recorder.pprof.by("pid")) == {inside.pid, lower.pid, later.pid}
    assert recorder.kind["filtered"] > 0


def test_cgroup_that_is_removed_ends_the_recording(tmp_path):
    path = rig.unified_cgroup() / "flyball-test-gone"
    with rig.cgroup(path):
        recorder = rig.Recorder(tmp_path, "--cgroup", path)
        try:
            recorder.wait_sampling()
            path.rmdir()
            recorder.finish()  # by itself
        finally:
            recorder.give_up()
        path.mkdir()
    assert f"{path} was removed" in recorder.error_text(), recorder.why()


def test_cgroup_that_is_none(tmp_path):
    for path in ("/nonexistent", "/tmp", "/etc/passwd"):
        done = rig.flyball("record", "--cgroup", path, "-d", 1, "-o", tmp_path / "x.folded")
        assert done.returncode in (2, 3, 4) and len(done.stderr.decode().strip().splitlines()) == 1, done
        assert path in done.stderr.decode()


# ------------------------------------------------------------------------------------ everything


def test_kernel_threads_have_kernel_stacks_only(tmp_path):
    """Whatever they do, no user frame is invented for them; nor an executable."""
    with rig.recording(tmp_path, "-a", "-F", 999) as recorder:
        subprocess.run(["dd", "if=/dev/zero", f"of={tmp_path}/written", "bs=1M", "count=300", "conv=fsync", "status=none"],
                       check=True)
    threads = [s for s in recorder.pprof.samples
               if s.labels["comm"].startswith(("kworker/", "ksoftirqd/", "jbd2/", "rcu_", "kcompactd"))]
    assert threads, sorted({s.labels["comm"] for s in recorder.pprof.samples})
    for s in threads:
        assert s.frames and not s.user and "exe" not in s.labels, (s.labels, s.names)


# ------------------------------------------------------------------------------------ options


def test_no_kernel(tmp_path, targets):
    target = targets.start("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "status=none")
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "--no-kernel") as recorder:
        rig.run_for(1)
    assert recorder.kind["delivered"] > 0 and not any(line.kernel for line in recorder.folded), recorder.why()


def test_no_symbols_opens_no_files(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "--no-symbols") as recorder:
        rig.run_for(1)
    user = [line for line in recorder.folded if line.user]
    assert user and all("+0x" in frame for line in user for frame in line.user), recorder.why()
    assert recorder.summary["stacks"]["unnamed"]["not_asked"] > 0


@pytest.mark.parametrize("depth", [1, 5, 126, 127, 500, 999])
def test_depth(depth, tmp_path, targets, cases):
    """The frames nearest the leaf, under one pseudo frame that says so; no sample dropped."""
    target = targets.start(cases / "deep.fponly", 1000)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "--depth", depth, "--no-kernel") as recorder:
        rig.run_for(0.7)
    # On a machine whose CPU is taken away a walk may have its 200 us before it is deep.
    lines = [line for line in recorder.folded
             if line.leaf == "leaf_spin" and not line.frames[0].startswith("[incomplete: time_budget")]
    assert lines and all(len(line.user) == depth for line in lines), recorder.why()
    assert all(line.frames[0].startswith("[truncated") for line in lines), recorder.why()
    assert recorder.summary["stacks"]["cut"]["depth_limit"] > 0
    assert recorder.dropped == 0


def test_whole_below_the_limit(tmp_path, targets, cases):
    target = targets.start(cases / "deep.fponly", 100)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", 199) as recorder:
        rig.run_for(0.7)
    # gcc gives leaf_spin no frame of its own, since it touches no stack: its caller may be passed over.
    whole = [line for line in recorder.folded
             if line.leaf == "leaf_spin" and line.user.count("rec") in (100, 101)]
    assert sum(line.value for line in whole) >= 0.95 * recorder.folded.total, recorder.why()
    assert all("main" in line.user for line in whole)
