# SPDX-License-Identifier: Apache-2.0
"""flyball unwind --stack: one walk of a live thread by tables, beside libdw's."""

import json
import subprocess

import rig


def stack(*args):
    return subprocess.run([rig.FLYBALL, "unwind", *map(str, args)], capture_output=True, text=True, check=False,
                          timeout=60)


def is_asleep(process):
    rig.wait_for(lambda: "nanosleep" in open(f"/proc/{process.pid}/wchan").read(), "it sleeps")


def test_a_sleeping_program_is_walked_to_its_start():
    with subprocess.Popen(["sleep", "600"]) as target:
        try:
            is_asleep(target)
            done = stack("--json", "--stack", target.pid)
            text = stack("--stack", target.pid)
            assert target.poll() is None  # it goes on
        finally:
            target.kill()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["verdict"] == "same" and said["end"] == "whole" and said["in_syscall"]
    assert said["frames"] == said["libdw_frames"] and len(said["frames"]) >= 5
    assert said["frames"][0]["place"].endswith("clock_nanosleep")
    assert any("__libc_start_main" in f["place"] for f in said["frames"])
    assert text.returncode == 0 and "; same" in text.stdout.splitlines()[-1]
    assert len(text.stdout.splitlines()) == len(said["frames"]) + 2


def test_code_in_a_deleted_file_is_walked(tmp_path):
    copy = tmp_path / "sleeper"
    copy.write_bytes(open("/bin/sleep", "rb").read())
    copy.chmod(0o755)
    with subprocess.Popen([copy, "600"]) as target:
        try:
            is_asleep(target)
            copy.unlink()
            said = json.loads(stack("--json", "--stack", target.pid).stdout)
        finally:
            target.kill()
    assert said["verdict"] == "same" and said["end"] == "whole"
    assert any(f["place"].startswith("sleeper") for f in said["frames"])


def test_who_is_not_there_or_not_to_be_walked_is_told():
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    gone = stack("--stack", ended.pid)
    assert gone.returncode not in (0, 1) and gone.stderr.startswith("flyball: ")
    assert stack("--stack", "x").returncode == 2
    assert stack("--stack", "1", "/bin/true").returncode == 2
    kernel = stack("--stack", "2")  # kthreadd
    assert kernel.returncode not in (0, 1)
    assert kernel.stderr == "flyball: 2 is a kernel thread: it has no user stack\n"
