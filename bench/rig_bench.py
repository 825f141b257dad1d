# SPDX-License-Identifier: Apache-2.0
"""What bench/run and bench/syscall share: subjects under measure, programs, the machine's description."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("FLYBALL_BUILD", ROOT / "build")).resolve()
FLYBALL = BUILD / "flyball"
BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")


def fail(sentence, status=4):
    print(f"{Path(sys.argv[0]).name}: {sentence}", file=sys.stderr)
    sys.exit(status)


def need_root_and_build():
    if os.geteuid() != 0:
        fail(f"run it as root (sudo bench/{Path(sys.argv[0]).name}): profilers of the whole machine need it", 3)
    if not FLYBALL.is_file():
        fail(f"{FLYBALL} is not built: run scripts/quickstart, or set FLYBALL_BUILD")


def compile_program(source, folder):
    program = Path(folder) / Path(source).stem
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g",
                    "-fno-omit-frame-pointer", "-o", program, ROOT / source], check=True)
    return program


def machine():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    ram = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    virtual = "virtual machine, " if "hypervisor" in Path("/proc/cpuinfo").read_text() else ""
    return f"{virtual}{os.cpu_count()} CPUs of {model}, {ram:.0f} GiB, Linux {platform.release()}"


def cgroup2_root():
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        if right.split()[0] == "cgroup2":
            return Path(left.split()[4])
    return None


class Group:
    """A cgroup around a subject: the CPU time of all its processes, also of those that are gone."""

    def __init__(self):
        root = cgroup2_root()
        if root is None:
            fail("no cgroup2 is mounted; without one the CPU time of all processes of a subject is not known")
        self.path = root / f"flyball-bench-{os.getpid()}"
        self.path.mkdir(exist_ok=True)

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self):
        with contextlib.suppress(OSError):
            return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]
        return []

    def cpu_seconds(self):
        for line in (self.path / "cpu.stat").read_text().splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
        return 0.0

    def remove(self):
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.02)


class MemoryWatch(threading.Thread):
    """The peak of the anonymous memory of all processes of a group together."""

    def __init__(self, group, every=0.05):
        super().__init__(daemon=True)
        self.group, self.every = group, every
        self.peak_bytes, self.is_over = 0, threading.Event()

    def run(self):
        while not self.is_over.wait(self.every):
            total = 0
            for pid in self.group.pids():
                with contextlib.suppress(OSError):
                    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                        if line.startswith("RssAnon:"):
                            total += int(line.split()[1]) * 1024
            self.peak_bytes = max(self.peak_bytes, total)


def bpf_programs():
    """id -> (run_time_ns, run_cnt) of every BPF program now loaded."""
    said = subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, text=True, check=False).stdout
    try:
        return {p["id"]: (p.get("run_time_ns", 0), p.get("run_cnt", 0)) for p in json.loads(said or "[]")}
    except ValueError:
        return {}


@contextlib.contextmanager
def bpf_statistics():
    before = BPF_STATS.read_text()
    BPF_STATS.write_text("1")
    try:
        yield
    finally:
        BPF_STATS.write_text(before)


def perf_events(pid):
    count = 0
    with contextlib.suppress(OSError):
        for fd in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                count += "perf_event" in os.readlink(fd.path)
    return count


class Subject:
    """One profiler, from its start until it has ended and handed over what it found."""

    name = ""
    signal = signal.SIGINT

    def __init__(self, folder):
        self.folder = Path(folder)
        self.notes = []

    def command(self):
        raise NotImplementedError

    def after(self):
        """Commands that make its samples readable; they count as its cost."""
        return []

    def samples(self):
        raise NotImplementedError

    def start(self):
        self.group = Group()
        self.old_programs = set(bpf_programs())
        self.out = open(self.folder / f"{self.name}.out", "w+b")
        self.err = open(self.folder / f"{self.name}.err", "w+b")
        self.process = subprocess.Popen([str(word) for word in self.command()], stdin=subprocess.DEVNULL,
                                        stdout=self.out, stderr=self.err, preexec_fn=self.group.enter,
                                        cwd=self.folder)
        self.memory = MemoryWatch(self.group)
        self.memory.start()
        deadline = time.monotonic() + 60
        while not any(perf_events(pid) for pid in self.group.pids()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                fail(f"{self.name} did not start: {self.text('err')[-300:].strip()}")
            time.sleep(0.05)
        time.sleep(1)
        self.cpu_ready = self.group.cpu_seconds()

    def loaded(self):
        """Call when the load is over: what it cost until then, in its processes and in BPF."""
        self.cpu_loaded = self.group.cpu_seconds()
        new = {i: v for i, v in bpf_programs().items() if i not in self.old_programs}
        self.bpf_ns = sum(ns for ns, _ in new.values())
        self.bpf_runs = sum(runs for _, runs in new.values())

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(self.signal)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                self.notes.append("had to be killed")
        if self.process.returncode not in (0, 130, -signal.SIGINT, -signal.SIGTERM):
            self.notes.append(f"ended with status {self.process.returncode}: {self.last_words()}")
        for command in self.after():
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, preexec_fn=self.group.enter, cwd=self.folder, check=False)
        self.memory.is_over.set()
        self.memory.join()
        self.cpu_ended = self.group.cpu_seconds()
        for stream in (self.out, self.err):
            stream.close()
        self.group.remove()

    def last_words(self):
        lines = self.text("err").strip().splitlines() or [""]
        return lines[-1][:120]

    def text(self, which):
        return (self.folder / f"{self.name}.{which}").read_text(errors="replace")


class Flyball(Subject):
    name = "flyball"

    def command(self):
        return [FLYBALL, "record", "-a", "-F", "99", "-d", "1h", "--json", "-o", self.folder / "flyball.pb.gz"]

    def samples(self):
        self.summary = json.loads(self.text("out"))
        return self.summary["kinds"]["on_cpu"]["delivered"]


def temporary():
    return tempfile.TemporaryDirectory(prefix="flyball-bench-")
