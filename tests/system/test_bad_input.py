# SPDX-License-Identifier: Apache-2.0
"""What bad input gets: a sentence and a status, or a frame without a name; never a crash or a hang."""

import os
import shutil
import socket
import stat
import threading
import time

import pytest
import rig

# ------------------------------------------------------------------------------------ the command line


def refused(*args, status=2, word=None, **options):
    """One sentence on stderr, nothing on stdout, no file."""
    done = rig.flyball(*args, **options)
    text = done.stderr.decode()
    assert done.returncode == status, (args, done)
    assert len(text.strip().splitlines()) == 1, text
    assert done.stdout == b""
    if word:
        assert word in text, (word, text)
    return text


@pytest.mark.parametrize("args,word", [
    (["-F", "0"], "-F"), (["-F", "10001"], "-F"), (["-F", "-1"], "-F"), (["-F", "99x"], "-F"), (["-F", ""], "-F"),
    (["-F", "18446744073709551617"], "-F"), (["-F", "1e3"], "-F"),
    (["-d", "0"], "-d"), (["-d", "-1"], "-d"), (["-d", "soon"], "-d"), (["-d", "99999999999999h"], "-d"),
    (["--ring", "3000"], "--ring"), (["--ring", "12KiB"], "--ring"), (["--ring", "1"], "--ring"),
    (["--ring", "0"], "--ring"), (["--ring", "2048"], "--ring"), (["--ring", "lots"], "--ring"),
    (["--depth", "0"], "--depth"), (["--depth", "1025"], "--depth"),
    (["--kernel-memory", "0"], "--kernel-memory"), (["--kernel-memory", "x"], "--kernel-memory"),
    (["-p", "0"], "-p"), (["-p", "abc"], "-p"), (["-p", "1,,x"], "-p"), (["-p", "-5"], "-p"), (["-p", ""], "-p"),
    (["-p", "1,"], "-p"), (["-p", ",1"], "-p"), (["--"], "command"),
    (["-o", "x.txt"], "x.txt"), (["-o", "x"], "x"), (["-o", "x.svg"], "x.svg"), (["-o", ""], None),
    (["-o", "x.folded.gz"], "x.folded.gz"), (["-a", "-p", "1"], "-a"), (["--json", "-o", "-"], "--json"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_absurd_arguments(args, word, tmp_path):
    refused("record", *args, word=word, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["--frobnicate"], ["-z"], ["record", "--frobnicate"], ["frobnicate"], ["plan", "x"],
                                  ["explain", "no_such_reason"], ["doctor", "x"]])
def test_unknown_words(args):
    done = rig.flyball(*args)
    assert done.returncode == 2 and done.stderr and done.stdout == b"", done


def test_no_arguments_shows_help():
    done = rig.flyball()
    assert done.returncode == 2 and b"record" in done.stderr
    for command in ("record", "plan", "doctor", "explain"):
        done = rig.flyball(command, "--help")
        assert done.returncode == 0 and done.stdout, command
        assert rig.flyball("help", command).stdout == done.stdout
    refused("help", "frobnicate", word="frobnicate")


def test_no_proc(tmp_path):
    """A root without /proc: said, not taken for a flyball that is not whole."""
    script = 'mount -t tmpfs none /proc && exec "$@"'
    done = rig.subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", rig.FLYBALL, "record", "-d", "1", "-o",
                               tmp_path / "x.folded"], capture_output=True, text=True, check=False)
    assert done.returncode == 4 and "/proc is not mounted" in done.stderr, done
    assert len(done.stderr.strip().splitlines()) == 1 and list(tmp_path.iterdir()) == []


def test_every_reason_is_explained(tmp_path):
    recorder = rig.record_command(tmp_path, ["true"])
    reasons = [*recorder.kind["dropped"], *recorder.summary["stacks"]["cut"], *recorder.summary["stacks"]["unnamed"]]
    assert len(reasons) == len(set(reasons)) > 15
    done = rig.flyball("explain", *reasons)
    assert done.returncode == 0, done.stderr
    assert all(reason in done.stdout.decode() for reason in reasons)


# ------------------------------------------------------------------------------------ processes


def test_unknown_pid(tmp_path):
    pid = int(open("/proc/sys/kernel/pid_max", encoding="ascii").read()) - 1
    text = refused("record", "-p", pid, "-d", 1, "-o", tmp_path / "x.folded", status=4)
    assert text == f"flyball: there is no process {pid}\n"
    assert list(tmp_path.iterdir()) == []


def test_thread_in_place_of_a_pid(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", "-t", 600)
    rig.wait_for(lambda: len(rig.threads(target.pid)) == 2, "both threads run")
    thread = max(rig.threads(target.pid))
    refused("record", "-p", thread, "-d", 1, "-o", tmp_path / "x.folded", status=4, word=str(thread))


def test_pid_that_exits_at_once(tmp_path, targets):
    """Between the look at it and the first tick."""
    for _ in range(5):
        target = targets.start("sleep", "0.3")
        done = rig.flyball("record", "-p", target.pid, "-o", tmp_path / "x.folded")
        assert done.returncode in (0, 4), done
        if done.returncode:
            assert str(target.pid) in done.stderr.decode()
        else:  # it slept: what there is no sample of is said
            assert "nothing that was watched ran" in done.stderr.decode(), done


def test_zombie(tmp_path, targets):
    target = targets.start("true")
    rig.wait_for(lambda: rig.proc_stat(target.pid)[0] == "Z", "it is a zombie")
    text = refused("record", "-p", target.pid, "-d", 1, "-o", tmp_path / "x.folded", status=4, word=str(target.pid))
    assert "zombie" in text and list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------ outputs


def before_it_starts(tmp_path, path, *args, status=4):
    """Found out before the command runs."""
    done = rig.flyball("record", "-o", path, *args, "--", "touch", tmp_path / "ran")
    assert done.returncode == status, done
    assert len(done.stderr.decode().strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "ran").exists(), "the command ran although its output cannot be written"
    return done.stderr.decode()


def test_output_in_no_directory(tmp_path):
    assert "/nonexistent/x.folded" in before_it_starts(tmp_path, "/nonexistent/x.folded")


def test_output_below_a_file(tmp_path):
    before_it_starts(tmp_path, "/etc/passwd/x.folded")


def test_output_that_is_a_directory(tmp_path):
    (tmp_path / "x.folded").mkdir()
    before_it_starts(tmp_path, tmp_path / "x.folded")


def test_output_on_a_read_only_file_system(tmp_path):
    before_it_starts(tmp_path, "/proc/x.folded")
    before_it_starts(tmp_path, "/sys/x.folded")


def test_output_that_is_a_link(tmp_path):
    """The name a user gave must not lead to another file."""
    (tmp_path / "precious").write_text("precious\n")
    for target in ("precious", "nowhere"):
        link = tmp_path / "x.folded"
        link.symlink_to(tmp_path / target)
        before_it_starts(tmp_path, link)
        assert link.is_symlink()
        link.unlink()
    assert (tmp_path / "precious").read_text() == "precious\n"
    assert not (tmp_path / "nowhere").exists()


def test_output_that_is_a_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "x.folded"))
        before_it_starts(tmp_path, tmp_path / "x.folded")


def test_second_output_that_cannot_be_written(tmp_path):
    """Neither is begun."""
    done = rig.flyball("record", "-o", tmp_path / "x.folded", "-o", "/nonexistent/y.folded", "--", "true")
    assert done.returncode == 4
    assert list(tmp_path.iterdir()) == []


def refuse(directory, call, *more):
    """A wrapper under which a system call of flyball fails."""
    return ["strace", "-o", directory / "strace", *more, "-e", f"trace={call}", "-e",
            f"inject={call}:error=EOPNOTSUPP"]


@pytest.mark.parametrize("way", ["without a name", "none can be made", "none can be named"])
def test_file_is_replaced_whole(way, tmp_path, targets, workloads):
    """While it records the old file is there and whole; then the new one, with safe permissions. A file system may
    know no files without a name, or not how to name one."""
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    out = tmp_path / "x.folded"
    out.write_text("old 1\n")
    wrapper = {"none can be made": refuse(tmp_path, "openat", "-P", f"{tmp_path}/."),
               "none can be named": refuse(tmp_path, "linkat")}.get(way, [])
    recorder = rig.Recorder(tmp_path, "-a", "-o", out, wrapper=wrapper)
    try:
        recorder.wait_sampling()
        assert out.read_text() == "old 1\n"
        beside = [p for p in tmp_path.iterdir() if p.name.startswith(".")]
        assert bool(beside) == (way == "none can be made"), list(tmp_path.iterdir())
        assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in beside), list(tmp_path.iterdir())
        inode = out.stat().st_ino
        rig.run_for(0.2)
        recorder.stop().finish()
        assert out.stat().st_ino != inode and rig.Folded(out.read_bytes()).total > 0
        assert not wrapper or "(INJECTED)" in (tmp_path / "strace").read_text()
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")], list(tmp_path.iterdir())
    finally:
        recorder.give_up()


def test_device(tmp_path):
    link = tmp_path / "null.folded"
    link.symlink_to("/dev/null")
    done = rig.flyball("record", "-o", link, "--", "true")
    assert done.returncode == 0, done.stderr
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode), "/dev/null was replaced"


def test_full_device(tmp_path, workloads):
    """/dev/full: the failure is told and the other file is written."""
    link = tmp_path / "full.folded"
    link.symlink_to("/dev/full")
    done = rig.flyball("record", "-o", link, "-o", tmp_path / "fine.folded", "--", workloads / "split", 1)
    assert done.returncode == 4 and b"full.folded" in done.stderr, done
    assert rig.Folded((tmp_path / "fine.folded").read_bytes()).total > 0


def test_fifo(tmp_path, workloads):
    fifo = tmp_path / "x.folded"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    done = rig.flyball("record", "-o", fifo, "-o", tmp_path / "y.folded", "--", workloads / "split", 1)
    reader.join(rig.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert rig.Folded(read[0]).leaves("split")["work_a"] > 0 and read[0] == (tmp_path / "y.folded").read_bytes()
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_stdout(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    done = rig.flyball("record", "-p", target.pid, "-d", 1, "-o", "-", "-o", tmp_path / "x.folded")
    assert done.returncode == 0, done.stderr
    assert rig.Folded(done.stdout).leaves("split")["work_a"] > 0
    assert done.stdout == (tmp_path / "x.folded").read_bytes()


def test_stdout_that_closes(tmp_path, targets, workloads):
    """`flyball record -o - | head -1`: a sentence at most, no death by SIGPIPE without a word."""
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = rig.flyball("record", "-p", target.pid, "-d", 1, "-o", "-", "-o", tmp_path / "x.folded", stdout=write_end)
    os.close(write_end)
    assert done.returncode == 4, done
    assert rig.Folded((tmp_path / "x.folded").read_bytes()).total > 0


def test_output_directory_removed_meanwhile(tmp_path, targets, workloads):
    target = targets.start(workloads / "split", 600)
    rig.is_burning(target.pid)
    (tmp_path / "sub").mkdir()
    recorder = rig.Recorder(tmp_path, "-a", "-o", tmp_path / "sub" / "x.folded")
    try:
        recorder.wait_sampling()
        for path in (tmp_path / "sub").iterdir():
            path.unlink()
        (tmp_path / "sub").rmdir()
        rig.run_for(0.3)
        recorder.stop().finish(status=4)
        assert "x.folded" in recorder.error_text()
        assert recorder.folded.total > 0
    finally:
        recorder.give_up()


# ------------------------------------------------------------------------------------ files that programs run from


@pytest.mark.parametrize("program", ["deep.badshdr", "deep.shortnote", "deep.gzbomb", "deep.noshdr",
                                     "deep.truncsym", "deep.hugesym", "deep.badstr", "deep.2shstr"])
def test_damaged_elf_that_runs(program, tmp_path, targets, cases):
    """Delivered, named or by module and offset; others unaffected; no crash, no hang."""
    bad, good = targets.start(cases / program, 5), targets.start(cases / "deep", 5)
    rig.is_burning(bad.pid), rig.is_burning(good.pid)
    with rig.recording(tmp_path, "-p", f"{bad.pid},{good.pid}", "-F", 199) as recorder:
        rig.run_for(0.7)
        asked = time.monotonic()
        recorder.stop().finish()
        assert time.monotonic() - asked < 5
    leaves = recorder.folded.leaves(program)
    total = sum(ns for name, ns in leaves.items() if name)
    right = leaves["leaf_spin"] + sum(ns for name, ns in leaves.items() if name.startswith(f"{program}+0x"))
    assert right >= 0.95 * total > 0, recorder.why()
    assert recorder.folded.leaves("deep")["leaf_spin"] > 0


def test_damaged_files_that_are_mapped(tmp_path, targets, cases):
    """Truncated, 32-bit, text and nothing, all mapped executable by one program."""
    target = targets.start(cases / "map32", cases / "trunc2", cases / "m32", "/etc/passwd", "/dev/null")
    rig.is_burning(target.pid)
    with rig.recording(tmp_path, "-p", target.pid, "-F", 199) as recorder:
        rig.run_for(0.5)
    assert recorder.folded.leaves("map32")["spin"] >= 0.9 * recorder.folded.total, recorder.why()


def test_elf_that_shrinks_under_us(tmp_path, targets, cases):
    """A sparse copy that runs, truncated and grown over and over while it is read."""
    victim = tmp_path / "victim"
    shutil.copy(cases / "deep.g", victim)
    library = tmp_path / "data.so"
    shutil.copy(cases / "libb.so", library)
    whole = library.read_bytes()
    stop = threading.Event()

    def shake():
        while not stop.is_set():
            with open(library, "r+b") as f:
                f.truncate(700)
                f.truncate(0)
                f.write(whole)

    shaker = threading.Thread(target=shake)
    target = targets.start(cases / "map32", library)
    rig.is_burning(target.pid)
    shaker.start()
    try:
        with rig.recording(tmp_path, "-p", target.pid, "-F", 199) as recorder:
            rig.run_for(1)
    finally:
        stop.set()
        shaker.join()
    assert recorder.folded.leaves("map32")["spin"] > 0, recorder.why()


def test_flyball_itself_opens_no_foreign_file(tmp_path, targets, cases):
    """The main process reads only /proc, /sys and its own output: what could block stays outside."""
    target = targets.start(cases / "deep", 5)
    log = tmp_path / "strace"
    no_leaks = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}  # it traces too
    recorder = rig.Recorder(tmp_path, "-p", target.pid, "-d", 1, env=no_leaks,
                            wrapper=["strace", "-o", log, "-e", "trace=open,openat,openat2,stat,newfstatat,readlink"])
    try:
        recorder.finish()
    finally:
        recorder.give_up()
    foreign = [line for line in log.read_text().splitlines()
               if str(cases) in line or f"/proc/{target.pid}/map_files" in line or f"/proc/{target.pid}/exe" in line
               or f"/proc/{target.pid}/root" in line]
    assert foreign == []


def test_nothing_is_left_running(tmp_path):
    recorder = rig.Recorder(tmp_path, "-a", "-d", "500ms")
    helpers = set()
    try:
        recorder.wait_sampling()
        helpers = set(rig.descendants(recorder.main))
        recorder.finish()
    finally:
        recorder.give_up()
    assert helpers, "no helper was seen"
    rig.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in helpers), "the helpers have ended")


def test_closed_stderr(tmp_path):
    """SIGPIPE on a closed stderr ends nothing either."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = rig.flyball("record", "-a", "-d", "500ms", "-o", tmp_path / "x.folded", stderr=write_end)
    os.close(write_end)
    assert done.returncode == 0, done


# ------------------------------------------------------------------------------------ closed and full descriptors


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_descriptors_do_not_end_in_a_file(closed, tmp_path, workloads):
    """The first file opened would get the number of what was closed, and text for people with it."""
    out = tmp_path / "x.folded"
    done = rig.subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", rig.FLYBALL, "record", "-v", "-o", out, "--",
                               workloads / "split", "1"], timeout=rig.PATIENCE, check=False, stderr=rig.subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    folded = rig.Folded(out.read_bytes())
    assert folded.total > 0


def test_command_gets_closed_descriptors_closed(tmp_path):
    out = tmp_path / "fds"
    rig.subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", rig.FLYBALL, "record", "-o", tmp_path / "x.folded", "--", "sh", "-c",
                        f"test -e /proc/self/fd/2 && echo open >{out} || echo closed >{out}"],
                       timeout=rig.PATIENCE, check=True)
    assert out.read_text() == "closed\n"


def test_json_without_stdout_is_refused_before_the_start(tmp_path):
    done = rig.subprocess.run(["sh", "-c", '"$@" >&-', "sh", rig.FLYBALL, "record", "--json", "-o", tmp_path / "x.folded",
                               "--", "touch", tmp_path / "ran"], capture_output=True, timeout=rig.PATIENCE, check=False)
    assert done.returncode == 2 and b"stdout" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("args", [["plan"], ["doctor"], ["explain", "--markdown"], ["record", "--help"],
                                  ["record", "-a", "-d", "0.2", "--json"]])
def test_full_stdout_is_a_failure(args, tmp_path):
    with open("/dev/full", "wb") as full:
        done = rig.subprocess.run([rig.FLYBALL, *args], stdout=full, stderr=rig.subprocess.PIPE, timeout=rig.PATIENCE,
                                  cwd=tmp_path, check=False)
    assert done.returncode == 4 and b"stdout" in done.stderr, done


def test_only_what_was_written_is_listed(tmp_path, workloads):
    """Two of three outputs fail: both are said, neither is listed, the third is there; the command's status goes on."""
    os.mknod(tmp_path / "full.folded", stat.S_IFCHR | 0o600, os.makedev(1, 7))
    os.mknod(tmp_path / "full.html", stat.S_IFCHR | 0o600, os.makedev(1, 7))
    done = rig.flyball("record", "--json", "-o", tmp_path / "full.folded", "-o", tmp_path / "good.folded", "-o",
                       tmp_path / "full.html", "--", "sh", "-c", '"$1" 1 >/dev/null; exit 3', "sh", workloads / "split")
    assert done.returncode == 3, done
    summary = rig.json.loads(done.stdout)
    assert summary["files"] == [str(tmp_path / "good.folded")]
    assert summary["own_status"] == 4 and summary["exit_status"] == 3
    text = done.stderr.decode()
    assert "full.folded" in text and "full.html" in text


def test_fifo_without_a_reader_keeps_nobody_else_waiting(tmp_path):
    fifo, other = tmp_path / "p.folded", tmp_path / "other.folded"
    os.mkfifo(fifo)
    process = rig.subprocess.Popen([rig.FLYBALL, "record", "-o", fifo, "-o", other, "--", "true"],
                                   stderr=rig.subprocess.PIPE)
    try:
        rig.wait_for(other.exists, "the file beside the FIFO")
        assert b"waiting for a reader" in process.stderr.readline()
    finally:
        process.terminate()
        process.wait(timeout=rig.PATIENCE)
    assert not list(tmp_path.glob(".*tmp"))
