# SPDX-License-Identifier: Apache-2.0
"""Field cases of kinds `out` and `meta`: 57, 58, 60 and 64."""

import hashlib
import os
import shutil
import subprocess

import pytest
import rig

ALL = ("folded", "pb.gz", "otlp", "json", "html")


# ------------------------------------------------------------------------------------ 57


@pytest.mark.parametrize("per_thread", [False, True])
def test_57_names_with_anything_in_them(per_thread, tmp_path, targets, cases):
    """Blank, semicolon, newline, markup, brackets, nothing, and bytes that are no UTF-8."""
    target = targets.start(cases / "comms")
    rig.wait_for(lambda: len(rig.threads(target.pid)) == 9, "all threads run")
    rig.is_burning(target.pid)
    args = ["--per-thread"] if per_thread else []
    with rig.recording(tmp_path, "-a", "-F", 499, *args, outputs=ALL) as recorder:
        rig.run_for(1)
    # rig.Folded has checked every line by the grammar.
    roots = {line.root for line in recorder.folded if line.leaf == "spin"}
    if per_thread:
        roots = {root for root in roots if root.startswith(f"{target.pid}/")}
        prefix = {root.split(" ", 1)[0] for root in roots}
        assert prefix == {f"{target.pid}/{tid}" for tid in rig.threads(target.pid) if tid != target.pid}, roots
        roots = {root.split(" ", 1)[1] for root in roots}
    assert len(roots) >= 8, roots
    assert {"a b", "a:b 12", "[kworker/0:1]", "[noname]", "</title>\"'&"} <= roots, roots
    # Control characters look alike wherever they came from.
    newline = [root for root in roots if root.startswith("new") and root.endswith("line")]
    assert len(newline) == 1 and "\n" not in newline[0], roots
    assert sum("\ufffd" in root for root in roots) >= 2, roots
    # A user thread by the name of a kernel thread has user frames and its executable.
    fake = [s for s in recorder.pprof.samples
            if s.labels["comm"] == "[kworker/0:1]" and s.labels["pid"] == target.pid]
    assert fake and all(s.user and s.user[0].name == "spin" for s in fake if s.user), recorder.why()
    # In pprof the semicolon stays: only the folded form needs it gone.
    assert "a;b 12" in {s.labels["comm"] for s in recorder.pprof.samples}
    page = recorder.outputs["html"].read_text(encoding="utf-8")
    assert "</title>\"'&" not in page, "a name reached the page raw"


def test_57_names_on_the_terminal(tmp_path, targets, cases):
    """The summary shows the heaviest functions: no control character of a name reaches it."""
    target = targets.start(cases / "weird.control", 3)
    rig.is_burning(target.pid)
    recorder = rig.Recorder(tmp_path, "-p", target.pid, "-d", 1, json_summary=False, outputs=("folded",))
    try:
        recorder.finish()
    finally:
        recorder.give_up()
    shown = recorder.error_text()
    assert "esc" in shown and "red" in shown, shown
    assert not set(shown) & {"\x1b", "\x01"}, repr(shown)


# ------------------------------------------------------------------------------------ 58


def test_58_strings_that_are_not_utf8(tmp_path, targets, cases, bindings):
    """A symbol, thread names and a directory of raw bytes: nothing is dropped, every file is valid."""
    directory = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(directory)
    program = directory + b"/weird"
    shutil.copy(os.fsencode(cases / "weird.nonutf8"), program)
    target = subprocess.Popen([program, b"5"])
    targets.started.append(target)
    threads = targets.start(cases / "comms")
    rig.is_burning(target.pid), rig.is_burning(threads.pid)
    with rig.recording(tmp_path, "-p", f"{target.pid},{threads.pid}", "-F", 199, outputs=ALL) as recorder:
        rig.run_for(1.5)
    # Distinct bytes are told apart or replaced; the readable part stays.
    names = {name for s in recorder.pprof.samples for name in s.names}
    assert any(name.startswith("caf") and "\ufffd" in name for name in names), names
    # The official decoder refuses a request with one bad string.
    request = bindings.ExportProfilesServiceRequest.FromString(recorder.outputs["otlp"].read_bytes())
    assert any(s.startswith("caf") for s in request.dictionary.string_table)
    assert any(m.path.endswith("/weird") for m in recorder.pprof.mappings.values())


@pytest.mark.parametrize("program", ["weird.xss", "weird.long"])
def test_58_hostile_symbol_names(program, tmp_path, targets, cases):
    """Markup, a semicolon, and 1 MiB of name."""
    target = targets.start(cases / program, 5)
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", 199, outputs=ALL) as recorder:
        rig.run_for(0.7)
    total = recorder.folded.total
    assert total > 0
    if program == "weird.xss":
        assert recorder.folded.leaves()["</script><img src=x onerror=alert(1)>"] >= 0.9 * total, recorder.why()
        assert recorder.folded.has("a:b c 17") or all("a;b" not in line.text for line in recorder.folded)
        page = recorder.outputs["html"].read_text(encoding="utf-8")
        assert "<img src=x" not in page, "a symbol reached the page raw"
    else:
        longest = max(len(f) for line in recorder.folded for f in line.frames)
        assert longest <= 4096, longest
        if not rig.IS_ASAN:
            assert recorder.summary["cost"]["peak_anon_bytes"] <= 40 << 20


# ------------------------------------------------------------------------------------ 60


def check_pprof(path):
    data = path.read_bytes()
    assert not rig.pprof_faults(data), rig.pprof_faults(data)
    return rig.Pprof(data)


def test_60_of_kernel_time_only(tmp_path):
    recorder = rig.record_command(tmp_path, ["dd", "if=/dev/zero", "of=/dev/null", "bs=4M", "count=3000", "status=none"],
                                  "-F", 199)
    kernel = sum(line.value for line in recorder.folded if line.kernel)
    assert kernel > 0.5 * recorder.folded.total, recorder.why()


def test_60_of_generated_code_only(tmp_path, targets, cases):
    target = targets.start(cases / "jit", tmp_path / "map")
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid) as recorder:
        rig.run_for(1)
    # Locations without names have no lines.
    assert any(not frame.names or "+0x" in frame.name for frame in recorder.pprof.locations.values())


def test_60_of_nothing(tmp_path, targets, bindings):
    target = targets.start("sleep", 600)
    with rig.recording(tmp_path, "-p", target.pid, outputs=ALL) as recorder:
        rig.run_for(0.5)
    assert recorder.kind["taken"] == 0 and recorder.folded == []
    bindings.ExportProfilesServiceRequest.FromString(recorder.outputs["otlp"].read_bytes())


def test_60_equal_bytes(tmp_path, workloads):
    """One recording written twice is the same file twice."""
    twice = [tmp_path / f"again.{kind}" for kind in ALL]
    args = [word for path in twice for word in ("-o", path)]
    recorder = rig.record_command(tmp_path, [workloads / "split", 1], *args, outputs=ALL)
    for kind, again in zip(ALL, twice):
        first = recorder.outputs[kind].read_bytes()
        assert hashlib.sha256(first).digest() == hashlib.sha256(again.read_bytes()).digest(), kind


def test_60_ids_and_weights_of_a_busy_machine(tmp_path, targets, workloads, cases):
    targets.start(cases / "churn", 600, cases / "briefs")
    targets.start(workloads / "split", 600)
    with rig.recording(tmp_path, "-a", "-F", 499) as recorder:
        rig.run_for(2)
    profile = check_pprof(recorder.outputs["pb.gz"])
    assert profile.period == recorder.period_ns
    assert profile.types[0][1] == "count" and profile.types[-1] == ("cpu", "nanoseconds")
    assert abs(profile.duration_ns - recorder.summary["duration_ns"]) < 1e7


# ------------------------------------------------------------------------------------ 64

IDS = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(8)]
V1 = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/memory"]


def v1_hierarchy():
    for line in open("/proc/mounts", encoding="utf-8"):
        words = line.split()
        if words[2] == "cgroup" and {"pids", "freezer"} & set(words[3].split(",")):
            return rig.Path(words[1])
    return None


def cgroup_cases():
    """(name, hierarchy, directory below it, the container id that is right)"""
    pod = "podf1c2e6ad-8a1d-4e0c-9d0f-2b1f0c6d7e8a"
    return [
        ("containerd", "v2", f"kubepods.slice/kubepods-burstable.slice/cri-containerd-{IDS[0]}.scope", IDS[0]),
        ("nested", "v2", f"system.slice/containerd.service/kubepods-besteffort-{pod}.slice:cri-containerd:{IDS[1]}", IDS[1]),
        ("podman", "v2", f"machine.slice/libpod-{IDS[2]}.scope/container", IDS[2]),
        ("docker-v1", "v1", f"docker/{IDS[3]}", IDS[3]),
        ("crio-v1", "v1", f"kubepods/besteffort/{pod}/crio-{IDS[4]}", IDS[4]),
        ("unit", "v2", "system.slice/my\\x2dapp@a:b.service", ""),
        ("user", "v2", "user.slice", ""),
        ("conmon", "v2", f"machine.slice/crio-conmon-{IDS[5]}.scope", ""),
    ]


@pytest.mark.parametrize("name,hierarchy,path,right", cgroup_cases(), ids=[c[0] for c in cgroup_cases()])
def test_64_container_of_a_cgroup(name, hierarchy, path, right, tmp_path, targets, cases):
    root = rig.unified_cgroup() if hierarchy == "v2" else v1_hierarchy()
    if root is None:
        # No v1 here: the text is the same to the parser, and its unit test has it.
        root = rig.unified_cgroup()
    with rig.cgroup(root / path) as directory:
        target = targets.start(cases / "deep", 3)
        (directory / "cgroup.procs").write_text(str(target.pid))
        rig.is_burning(target.pid)
        with rig.recording(tmp_path, "-p", target.pid, outputs=("folded", "pb.gz", "otlp")) as recorder:
            rig.run_for(0.5)
        rig.kill(target)
    resources = [p.resource for p in recorder.otlp if p.resource.get("process.pid") == target.pid]
    assert resources, [p.resource for p in recorder.otlp]
    assert {r.get("container.id", "") for r in resources} == {right}, resources
    labels = [s.labels for s in recorder.pprof.samples]
    assert {label.get("container", "") for label in labels} == {right}, labels[:3]
    if name == "unit":
        assert any("my-app@a:b.service" in str(label.get("cgroup", "")) for label in labels), labels[:3]


def test_64_program_that_starts_and_ends_in_a_container(tmp_path, workloads):
    """Short-lived ones too: 20 ms and gone."""
    with rig.cgroup(rig.unified_cgroup() / f"kubepods.slice/cri-containerd-{IDS[6]}.scope") as directory:
        with rig.recording(tmp_path, "-a", "-F", 499) as recorder:
            script = 'echo $$ >"$1/cgroup.procs"; exec "$0" -n 60 "$2"'
            subprocess.run(["sh", "-c", script, workloads / "runner", directory, workloads / "brief20"],
                           check=True, capture_output=True)
    found = [s for s in recorder.pprof.samples if s.labels["comm"] == "brief20"]
    inside = sum(s.values[-1] for s in found if s.labels.get("container") == IDS[6])
    assert inside >= 0.9 * sum(s.values[-1] for s in found) > 0, recorder.why()


def test_64_process_that_is_moved(tmp_path, targets, cases):
    target = targets.start(cases / "deep", 3)
    rig.is_burning(target.pid)
    with rig.cgroup(rig.unified_cgroup() / f"system.slice/docker-{IDS[7]}.scope") as directory:
        with rig.recording(tmp_path, "-p", target.pid) as recorder:
            rig.run_for(0.7)
            (directory / "cgroup.procs").write_text(str(target.pid))
            rig.run_for(3)
        rig.kill(target)
    moved = sum(s.values[-1] for s in recorder.pprof.samples if s.labels.get("container") == IDS[7])
    assert moved >= 0.5 * recorder.pprof.total(), [s.labels for s in recorder.pprof.samples][:3]
