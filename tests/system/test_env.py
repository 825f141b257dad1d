# SPDX-License-Identifier: Apache-2.0
"""Field cases 43, 46, 49, 52 and 54: memory, loss, CPUs that go, what is missing, signals."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import rig

# ------------------------------------------------------------------------------------ 43


def plan(*args):
    done = rig.flyball("plan", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def measured(pid):
    """Bytes of a process's maps as the kernel accounts them, by name."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
            memlock = re.search(r"^memlock:\s+(\d+)", text, re.M)
            map_id = re.search(r"^map_id:\s+(\d+)", text, re.M)
            if memlock and map_id:
                found[map_id.group(1)] = int(memlock.group(1))
    return found


def test_43_kernel_memory_is_planned_and_read_back(tmp_path):
    planned = plan()
    with rig.recording(tmp_path, "-a") as recorder:
        rig.run_for(1)
        maps = sum(measured(recorder.main).values())
    memory = recorder.summary["kernel_memory"]
    assert memory["planned_bytes"] == planned["planned_bytes"] == sum(m["planned_bytes"] for m in memory["maps"])
    assert memory["measured_bytes"] <= memory["peak_bytes"] <= memory["planned_bytes"] <= memory["budget_bytes"]
    assert memory["measured_bytes"] == sum(m["measured_bytes"] for m in memory["maps"])
    # What others see of our maps is what we said; perf rings, programs and BTF are beside them.
    assert sum(m["measured_bytes"] for m in memory["maps"] if m["name"].startswith("fly_")) == maps, memory


def test_43_plan_for_many_cpus():
    """256 CPUs stay below the default ceiling of 64 MiB; the figure is stated."""
    large = plan("--cpus", "256")
    assert large["planned_bytes"] <= 64 << 20, large
    assert large["planned_bytes"] > plan()["planned_bytes"]


def test_43_plan_does_not_follow_pid_max():
    before = Path("/proc/sys/kernel/pid_max").read_text()
    first = plan()["maps"]
    try:
        Path("/proc/sys/kernel/pid_max").write_text("4194304")
        assert plan()["maps"] == first
    finally:
        Path("/proc/sys/kernel/pid_max").write_text(before)


def planned_alone(*programs):
    """What plan says of the processes that run, in a PID namespace with those programs and itself."""
    script = ("n=$1; shift; while [ $n -gt 0 ]; do \"$1\" 60000 >&2 & n=$((n-1)); "
              "while [ \"$(readlink /proc/$!/exe)\" != \"$1\" ]; do :; done; shift; done; exec \"$@\"")
    done = subprocess.run(["unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", script, "sh", str(len(programs)),
                           *map(str, programs), rig.FLYBALL, "plan", "--json"],
                          capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["running"]


def test_43_plan_forecasts_tables_of_what_runs(tmp_path, workloads):
    """Each file once, whatever the number of processes, by the forecast that `flyball unwind` tells too."""
    program = Path(shutil.copy(workloads / "brief20.nofp", tmp_path / "program"))
    forecast = json.loads(rig.flyball("unwind", "--json", program).stdout)["forecast_bytes"]
    none, one, three = planned_alone(), planned_alone(program), planned_alone(program, program, program)
    assert none["is_complete"] and none["processes"] == 1 and none["table_bytes"] > 0, none
    assert one["processes"] == 2 and three["processes"] == 4, (one, three)
    assert three["files"] == one["files"] and three["table_bytes"] == one["table_bytes"], (one, three)
    assert one["table_bytes"] - none["table_bytes"] >= forecast > 0, (none, one, forecast)
    assert three["mapping_bytes"] > one["mapping_bytes"] > none["mapping_bytes"], (none, one, three)
    assert plan("--unwind", "frame-pointers")["running"] is None


def memory_hierarchy():
    for line in Path("/proc/mounts").read_text().splitlines():
        words = line.split()
        if words[2] == "cgroup" and "memory" in words[3].split(","):
            return Path(words[1]), "memory.limit_in_bytes"
    root = rig.unified_cgroup()
    if "memory" in (root / "cgroup.controllers").read_text().split():
        (root / "cgroup.subtree_control").write_text("+memory")
        return root, "memory.max"
    raise AssertionError("no memory controller: neither v1 nor v2 offers one")


def test_43_cgroup_too_small_for_the_plan(tmp_path):
    """One sentence that names the need, before anything is created."""
    root, limit = memory_hierarchy()
    before = rig.our_bpf_objects()
    with rig.cgroup(root / "flyball-test-small") as directory:
        (directory / limit).write_text(str(24 << 20))
        done = subprocess.run(["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', directory, rig.FLYBALL, "record",
                               "-a", "-d", "1", "--ring", "32MiB", "-o", tmp_path / "x.folded"],
                              capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    assert done.returncode not in (0, 137), done
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert re.search(r"\d+(\.\d+)? [KM]iB", done.stderr) and "cgroup" in done.stderr, done.stderr
    assert rig.our_bpf_objects() <= before
    assert not (tmp_path / "x.folded").exists()


def test_43_budget_is_a_limit(tmp_path):
    for args in (["--kernel-memory", "64KiB"], ["--ring", "64MiB", "--kernel-memory", "8MiB"], ["--kernel-memory", "100GiB"]):
        done = rig.flyball("record", "-a", "-d", 1, "-o", tmp_path / "x.folded", *args)
        assert done.returncode in (2, 3, 4), (args, done)
        assert len(done.stderr.decode().strip().splitlines()) == 1, done.stderr


# ------------------------------------------------------------------------------------ 46


def test_46_loss_is_told(tmp_path, targets, cases):
    """A stopped agent under a flood of threads and processes: what is taken and lost is all there was."""
    stop = 20 if rig.LONG else 3
    rig.burn_every_cpu(targets, cases / "deep", 5)
    targets.start(cases / "manythr", 2000, 60)
    targets.start(cases / "churn", 600, cases / "brief")
    with rig.recording(tmp_path, "-a", "-F", 99, "--ring", "64KiB") as recorder:
        rig.run_for(0.5)
        recorder.stop(signal.SIGSTOP)
        rig.run_for(stop)
        recorder.stop(signal.SIGCONT)
        rig.run_for(0.5)
    k = recorder.kind
    expected = recorder.summary["duration_ns"] / recorder.period_ns * recorder.summary["cpus"]
    assert abs(k["idle"] + k["taken"] + k["missed_by_kernel"] - expected) <= 0.02 * expected, recorder.why()
    # One flooder does not starve the others wholly.
    assert recorder.folded.leaves("deep")["leaf_spin"] > 0, recorder.why()


# ------------------------------------------------------------------------------------ 49

CPU1 = Path("/sys/devices/system/cpu/cpu1/online")


@contextlib.contextmanager
def cpu_hotplug():
    if not os.access(CPU1, os.W_OK):
        pytest.skip("cpu1 cannot be taken offline on this machine")
    try:
        yield
    finally:
        CPU1.write_text("1")
        rig.wait_for(lambda: CPU1.read_text() == "1\n", "cpu1 is back online")


def test_cpu_offline_at_the_start(tmp_path, targets, cases):
    with cpu_hotplug():
        CPU1.write_text("0")
        with rig.recording(tmp_path, "-a", "-F", 99) as recorder:
            first = targets.start("taskset", "-c", "0", cases / "deep", 5)
            rig.is_burning(first.pid)
            rig.run_for(0.5)
            CPU1.write_text("1")
            second = targets.start("taskset", "-c", "1", cases / "deep", 5)
            rig.is_burning(second.pid)
            rig.run_for(4)
            burned = rig.cpu_seconds(second.pid)
            rig.kill(first), rig.kill(second)
    by_pid = recorder.pprof.by("pid")
    assert by_pid[first.pid] > 0, recorder.why()
    # Sampled soon after it came online (5 s were allowed), and then whole.
    assert by_pid[second.pid] >= 0.7 * burned * rig.SECOND, (by_pid[second.pid], burned)


def test_cpu_goes_and_returns(tmp_path, targets, cases):
    """The sum of samples fits the CPU seconds there were; every CPU is busy while it is there."""
    with cpu_hotplug():
        burning = rig.burn_every_cpu(targets, cases / "deep", 5)
        before = [rig.cpu_seconds(target.pid) for target in burning]
        with rig.recording(tmp_path, "-a", "-F", 99) as recorder:
            begin = time.monotonic()
            rig.run_for(1)
            CPU1.write_text("0")
            gone = time.monotonic()
            rig.run_for(1)
            CPU1.write_text("1")
            back = time.monotonic()
            for cpu, target in enumerate(burning):
                os.sched_setaffinity(target.pid, {cpu})  # the kernel moved one away for good
            rig.run_for(2)
            end = time.monotonic()
            burned = sum(rig.cpu_seconds(target.pid) - b for target, b in zip(burning, before)) * rig.SECOND
    others = len(burning) - 1
    online = (end - begin) * others + (gone - begin) + (end - back)
    ticks = recorder.kind["ticks"] * recorder.period_ns / rig.SECOND
    assert 0.85 * online <= ticks <= 1.05 * online + 0.2, (ticks, online, recorder.why())
    # What the CPU did before it was seen again is lost: half a second, and the time to open it.
    weight = sum(recorder.pprof.by("pid")[target.pid] for target in burning)
    assert burned - 0.7 * rig.SECOND <= weight <= 1.05 * burned + 0.2 * rig.SECOND, (weight, burned, recorder.why())


# ------------------------------------------------------------------------------------ 52


def in_namespace(script, *args, seconds=rig.PATIENCE):
    """Runs flyball where something is missing; script ends in exec "$@"."""
    return subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", str(rig.FLYBALL), *map(str, args)],
                          capture_output=True, text=True, timeout=seconds, check=False)


def check_refusal(done, *words):
    """One sentence that says what is missing; no stack of errors, no verifier dump."""
    lines = done.stderr.strip().splitlines()
    assert done.returncode in (2, 3), (done.returncode, done.stderr)
    assert len(lines) == 1, done.stderr
    for word in words:
        assert re.search(word, lines[0], re.I), (word, lines[0])


def test_52_without_tracefs_and_debugfs(tmp_path):
    out = tmp_path / "x.folded"
    done = in_namespace("umount /sys/kernel/tracing 2>/dev/null; umount /sys/kernel/debug 2>/dev/null; exec \"$@\"",
                        "record", "-o", out, "--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    assert done.returncode == 0, done.stderr
    assert rig.Folded(out.read_bytes()).total > 0


def test_52_without_btf(tmp_path):
    done = in_namespace("mount --bind /dev/null /sys/kernel/btf/vmlinux; exec \"$@\"",
                        "record", "-a", "-d", 1, "-o", tmp_path / "x.folded")
    check_refusal(done, "BTF")


def test_52_without_sys(tmp_path):
    """No /sys: says so, or does without; never a crash."""
    done = in_namespace("umount -l /sys; exec \"$@\"", "record", "-a", "-d", 1, "-o", tmp_path / "x.folded")
    if done.returncode:
        check_refusal(done, "/sys|BTF")


def test_52_without_capabilities(tmp_path):
    done = subprocess.run(["setpriv", "--bounding-set", "-sys_admin,-bpf,-perfmon", "--inh-caps",
                           "-sys_admin,-bpf,-perfmon", rig.FLYBALL, "record", "-a", "-d", "1", "-o",
                           tmp_path / "x.folded"], capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    check_refusal(done, "CAP_|capabilit|root")


def test_52_as_nobody():
    """Copied to where nobody can reach it."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        for name in ("flyball", "flyball-opener", "flyball-reader"):
            shutil.copy(rig.FLYBALL.parent / name, directory)
        done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                               f"{directory}/flyball", "record", "-a", "-d", "1", "-o", "-"],
                              capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    check_refusal(done, "CAP_|capabilit|root")


def test_52_small_memlock(tmp_path):
    """Kernels from 5.11 on do not charge maps to RLIMIT_MEMLOCK; perf rings still may be."""
    done = subprocess.run(["prlimit", "--memlock=65536", rig.FLYBALL, "record", "-o", tmp_path / "x.folded", "--",
                           "true"], capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


def test_52_read_only_everything(tmp_path):
    """Nothing but the output can be written: no cache or scratch file is needed."""
    (tmp_path / "rw").mkdir()
    out = tmp_path / "rw" / "x.folded"
    done = in_namespace(f'mount --bind "{tmp_path}/rw" "{tmp_path}/rw" && mount -o remount,bind,ro / && exec "$@"',
                        "record", "-o", out, "--", "true")
    assert done.returncode == 0, done.stderr
    assert out.exists()


def test_52_without_helpers(tmp_path):
    """The two helper programs are not beside flyball."""
    shutil.copy(rig.FLYBALL, tmp_path / "flyball")
    done = subprocess.run([tmp_path / "flyball", "record", "-a", "-d", "1", "-o", tmp_path / "x.folded"],
                          capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    if done.returncode:  # installed ones may be found in LIBEXECDIR
        assert len(done.stderr.strip().splitlines()) == 1 and "flyball-opener" in done.stderr, done.stderr


def test_52_doctor_agrees(tmp_path):
    """doctor says beforehand what record says afterwards."""
    fine = rig.flyball("doctor", "--json")
    assert fine.returncode == 0, fine.stderr
    checks = json.loads(fine.stdout)
    assert checks["can_run"] and checks["checks"]
    assert {c["name"]: c["level"] for c in checks["checks"]}["tables"] == "fine"
    assert all(c["text"] and c["text"].rstrip()[-1] in ".!)" or len(c["text"]) < 320 for c in checks["checks"])
    broken = in_namespace("mount --bind /dev/null /sys/kernel/btf/vmlinux; exec \"$@\"", "doctor", "--json")
    assert broken.returncode == 3
    bad = [c for c in json.loads(broken.stdout)["checks"] if c["level"] == "blocker"]
    assert bad and all("BTF" in c["text"] for c in bad), bad  # and nothing else: no kernel that is too old


def test_52_shifted_clocks(tmp_path, workloads):
    """A time namespace: handled, or refused at the start with a sentence."""
    done = subprocess.run(["unshare", "-T", "--boottime", "864000", "--monotonic", "864000", "--fork", rig.FLYBALL,
                           "record", "-o", tmp_path / "x.pb.gz", "--", workloads / "split", "1"],
                          capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
    if done.returncode:
        check_refusal(done, "time namespace")
        return
    profile = rig.Pprof((tmp_path / "x.pb.gz").read_bytes())
    assert abs(profile.time_ns - time.time_ns()) < 60 * rig.SECOND
    assert profile.total() >= 0.8 * rig.SECOND


# ------------------------------------------------------------------------------------ 54


def test_54_goes_on_after_interruptions(tmp_path, targets, cases):
    """STOP and CONT, a debugger that comes and goes, SIGWINCH: EINTR ends nothing."""
    target = targets.start(cases / "deep", 5)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid) as recorder:
        for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGWINCH, signal.SIGSTOP, signal.SIGCONT):
            recorder.stop(number)
            rig.run_for(0.1)
        tracer = targets.start("strace", "-o", tmp_path / "strace", "-p", recorder.main)
        rig.wait_for(lambda: (tmp_path / "strace").exists() and (tmp_path / "strace").stat().st_size > 0,
                     "strace is attached")
        tracer.send_signal(signal.SIGINT)
        tracer.wait(timeout=rig.PATIENCE)
        begin = rig.cpu_seconds(target.pid)
        rig.run_for(3)
        burned = rig.cpu_seconds(target.pid) - begin
        asked = time.monotonic()
        recorder.stop(signal.SIGTERM).finish()
        took = time.monotonic() - asked
    assert recorder.folded.total >= 0.9 * burned * rig.SECOND, recorder.why()
    assert took < 5, f"{took:.1f} s to end"


def test_54_hangup_loses_nothing(tmp_path, targets, cases):
    """SIGHUP, as when the terminal goes: what was collected is written."""
    target = targets.start(cases / "deep", 5)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid) as recorder:
        begin = rig.cpu_seconds(target.pid)
        rig.run_for(1)
        burned = rig.cpu_seconds(target.pid) - begin
        recorder.stop(signal.SIGHUP)
        rig.run_for(0.3)
    assert recorder.folded.total >= 0.8 * burned * rig.SECOND, recorder.why()


def test_54_second_signal_gives_up_at_once(tmp_path, targets, workloads):
    """While a FIFO without a reader holds the end up; the files were written before it, and no temporary one stays."""
    fifo = tmp_path / "held.folded"
    os.mkfifo(fifo)
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    recorder = rig.Recorder(tmp_path, "-a", "-o", fifo, "-o", tmp_path / "late.folded")
    try:
        recorder.wait_sampling()
        rig.run_for(0.3)
        recorder.stop(signal.SIGTERM)
        rig.wait_for(lambda: (tmp_path / "late.folded").exists(), "the files are written")
        asked = time.monotonic()
        recorder.stop(signal.SIGTERM)
        recorder.finish(status=None)
        assert time.monotonic() - asked < 1
        assert recorder.status in (143, -signal.SIGTERM), recorder.status
        assert not list(tmp_path.glob(".*tmp*")), list(tmp_path.iterdir())
        assert rig.Folded((tmp_path / "late.folded").read_bytes()).total > 0
    finally:
        recorder.give_up()


@pytest.mark.parametrize("moment", ["sampling", "ending"])
def test_54_nothing_stays_after_kill(moment, tmp_path, targets, workloads):
    before = rig.bpf_objects()
    target = targets.start(workloads / "split", 600)
    recorder = rig.Recorder(tmp_path, "-a")
    try:
        recorder.wait_sampling()
        files = set(tmp_path.iterdir())
        assert rig.our_bpf_objects(), "flyball's objects are not seen: this test would prove nothing"
        helpers = rig.descendants(recorder.main)
        if moment == "ending":
            recorder.stop(signal.SIGINT)
        recorder.stop(signal.SIGKILL)
        recorder.finish(status=None)
        ours = {o for o in rig.bpf_objects() - before if o[2].startswith("fly_")}
        rig.wait_for(lambda: not ours & rig.bpf_objects(), "programs and maps of the killed flyball are gone")
        rig.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in helpers), "its helpers are gone")
        assert not list(Path("/sys/fs/bpf").glob("*fly*")) if Path("/sys/fs/bpf").exists() else True
        assert not list(tmp_path.glob(".*tmp")) and (moment == "ending" or files == {tmp_path / "stdout", tmp_path / "stderr"})
    finally:
        recorder.give_up()
    assert target.poll() is None


@pytest.mark.parametrize("helper", ["flyball-opener", "flyball-reader"])
def test_54_killed_helper_is_replaced(helper, tmp_path, targets, workloads, cases):
    with rig.recording(tmp_path, "-a", "-F", 199) as recorder:
        pids = [p for p in rig.descendants(recorder.main)
                if os.path.basename(os.readlink(f"/proc/{p}/exe")) == helper]
        assert pids, f"no {helper} runs below flyball"
        os.kill(pids[0], signal.SIGKILL)
        target = targets.start(cases / "deep", 5)
        rig.is_burning(target.pid)
        rig.run_for(1)
        rig.kill(target)
    assert recorder.folded.leaves("deep")["leaf_spin"] >= 0.9 * recorder.pprof.by("pid")[target.pid], recorder.why()
