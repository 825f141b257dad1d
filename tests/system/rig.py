# SPDX-License-Identifier: Apache-2.0
"""What the system tests stand on: flyball as a user runs it, targets, and waiting for conditions.

Nothing here sleeps to be in step with something: `wait_for` looks until a deadline. Every recording
that a test makes through `Recorder` has its ledger checked and the totals of its files compared, so
these hold in all tests and not in one.
"""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wire import Folded, Otlp, Pprof

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
BUILD = Path(os.environ.get("FLYBALL_BUILD", ROOT / "build"))
FLYBALL = Path(os.environ.get("FLYBALL", BUILD / "flyball")).resolve()
CACHE = Path(os.environ.get("FLYBALL_CACHE", "/var/cache/flyball-tests"))
LONG = bool(os.environ.get("FLYBALL_LONG"))
SECOND = 10**9
# A sanitizer build is slower; its memory and cost say nothing.
IS_ASAN = b"__asan_init" in FLYBALL.read_bytes() if FLYBALL.is_file() else False
PATIENCE = 120 if IS_ASAN else 40

_spec = importlib.util.spec_from_file_location("pprofcheck", TESTS / "cases" / "pprofcheck.py")


def pprof_faults(data):
    """What readers would refuse in a pprof file."""
    if not hasattr(pprof_faults, "check"):
        module = importlib.util.module_from_spec(_spec)
        arguments, sys.argv = sys.argv, ["pprofcheck"]  # it checks what argv names, and ends by exit
        try:
            _spec.loader.exec_module(module)
        except SystemExit:
            pass
        finally:
            sys.argv = arguments
        pprof_faults.check = module.check
    return pprof_faults.check(data)[0]


def wait_for(condition, what, seconds=PATIENCE, every=0.02):
    """Looks until condition() is true; its value. Fails by `what` at the deadline."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(every)


# ------------------------------------------------------------------------------------ targets


class Targets:
    """Programs a test started; what still runs at its end is killed, by the pids kept here."""

    def __init__(self):
        self.started = []

    def start(self, *argv, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.DEVNULL)
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([str(a) for a in argv], **options)
        self.started.append(process)
        return process

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                for pid in descendants(process.pid) + [process.pid]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdout, process.stderr, process.stdin):
                if stream:
                    stream.close()


def descendants(pid):
    """Pids below a process, deepest first."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += descendants(int(child)) + [int(child)]
    return found


def kill(process):
    process.kill()
    process.wait()


def end(process, seconds=PATIENCE):
    """SIGTERM; the JSON object it prints."""
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=seconds)
    return json.loads(out.splitlines()[-1])


def proc_stat(pid):
    """Fields of /proc/PID/stat after the name, from field 3."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def cpu_seconds(pid):
    user, system = proc_stat(pid)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def is_burning(pid):
    """Waits until a target is past its start and spends CPU time."""
    return wait_for(lambda: cpu_seconds(pid) >= 0.05, f"process {pid} spends CPU time")


def burn_every_cpu(targets, *argv):
    """A target on each CPU, past its start: the machine is busy whatever else runs, so every CPU has its ticks.
    Some virtual machines deliver none to an idle CPU, to nobody."""
    started = [targets.start("taskset", "-c", cpu, *argv) for cpu in sorted(os.sched_getaffinity(0))]
    for target in started:
        is_burning(target.pid)
    return started


def has_perf_events(pid):
    """Whether a process holds an open perf event; files that it closes meanwhile are none."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            if "perf_event" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                return True
    return False


def busy_ns():
    """CPU time that was not idle since the start of the machine, over all CPUs, as /proc/stat says it."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, words[1:9])
    return (user + nice + system + irq + softirq + steal) * SECOND // os.sysconf("SC_CLK_TCK")


def threads(pid):
    return [int(t) for t in os.listdir(f"/proc/{pid}/task")]


# ------------------------------------------------------------------------------------ recordings


def flyball(*args, seconds=PATIENCE, **options):
    """Runs a flyball command to its end."""
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([str(FLYBALL), *map(str, args)], timeout=seconds, check=False, **options)


class Recorder:
    """`flyball record` that runs beside the test.

    The files are written to `directory`; `args` are flyball's own. `stop` ends it as Ctrl-C does;
    `finish` waits, checks the ledger and the totals, and keeps what was read. Symbol files are kept for
    this recording alone, unless `symbol_cache` names a directory to share.
    """

    def __init__(self, directory, *args, outputs=("folded", "pb.gz"), wrapper=(), json_summary=True,
                 symbol_cache=None, **options):
        self.directory = Path(directory)
        self.outputs = {kind: self.directory / f"out.{kind}" for kind in outputs}
        self.symbol_cache = symbol_cache or tempfile.mkdtemp(prefix="symbols-", dir=self.directory.parent)
        argv = [*wrapper, FLYBALL, "record", "--symbol-cache", self.symbol_cache]
        for path in self.outputs.values():
            argv += ["-o", path]
        if json_summary:
            argv.append("--json")
        self.json_summary = json_summary
        self.argv = [str(a) for a in [*argv, *args]]
        self.error_file = open(self.directory / "stderr", "w+b")
        options.setdefault("stdin", subprocess.DEVNULL)
        self.out_file = open(self.directory / "stdout", "w+b")
        self.process = subprocess.Popen(self.argv, stdout=self.out_file, stderr=self.error_file, **options)
        self.main = self.process.pid
        self.summary = self.folded = self.pprof = self.otlp = None
        self.status = None

    # -- while it runs

    def find_main(self):
        """The pid of flyball itself below a wrapper that forks."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(OSError):
                if os.path.samefile(f"/proc/{pid}/exe", FLYBALL):
                    return pid
        return None

    def is_sampling(self):
        """Events are open and the main loop waits: everything between is over."""
        pid = self.find_main()
        if self.process.poll() is not None:
            raise AssertionError(f"flyball ended before it recorded: {self.error_text()}")
        if pid is None:
            return False
        with contextlib.suppress(OSError):
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            call = Path(f"/proc/{pid}/syscall").read_text().split()[0]
            self.main = pid
            # epoll_wait, epoll_pwait, epoll_pwait2
            return any("perf_event" in link for link in links) and call in ("232", "281", "441")
        return False

    def wait_sampling(self):
        wait_for(self.is_sampling, "flyball samples")
        return self

    def stop(self, number=signal.SIGINT):
        os.kill(self.main, number)
        return self

    # -- when it is over

    def error_text(self):
        return Path(self.error_file.name).read_text(errors="replace")

    def out_text(self):
        return Path(self.out_file.name).read_text(errors="replace")

    def finish(self, status=0, seconds=PATIENCE):
        """Waits for the end; the exit status must be `status` (None: any)."""
        try:
            self.status = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.give_up()
            raise AssertionError(f"flyball did not end within {seconds} s: {self.error_text()}") from None
        if IS_ASAN:
            assert "ERROR: AddressSanitizer" not in self.error_text(), self.error_text()
            assert "runtime error:" not in self.error_text(), self.error_text()
        if status is not None:
            assert self.status == status, f"exit status {self.status}: {self.error_text()}"
            self.read()
        return self

    def give_up(self):
        if self.process.poll() is None:
            for pid in [*descendants(self.process.pid), self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        self.error_file.close()
        self.out_file.close()

    def read(self):
        if self.json_summary:
            lines = self.out_text().splitlines()
            self.summary = json.loads(lines[-1])
            check_summary(self.summary)
        for kind, path in self.outputs.items():
            data = path.read_bytes()
            if kind == "folded":
                self.folded = Folded(data)
            elif kind == "pb.gz":
                assert not pprof_faults(data), pprof_faults(data)
                self.pprof = Pprof(data)
            elif kind == "otlp":
                self.otlp = Otlp(data)
        self.compare_totals()

    def compare_totals(self):
        totals = {}
        if self.summary:
            totals["summary"] = self.kind["weight_ns"]
        if self.folded is not None:
            totals["folded"] = self.folded.total
        if self.pprof:
            totals["pprof"] = self.pprof.total()
            if self.summary:
                assert self.pprof.total(0) == self.kind["delivered"], "pprof's count is not what was delivered"
        if self.otlp is not None:
            totals["otlp"] = self.otlp.total_ns
        assert len(set(totals.values())) <= 1, f"outputs of one recording differ: {totals}"

    @property
    def kind(self):
        return self.summary["kinds"]["on_cpu"]

    @property
    def period_ns(self):
        return SECOND // self.summary["hz"]

    @property
    def dropped(self):
        return sum(self.kind["dropped"].values())

    def why(self):
        """For assertion messages: what happened, in short."""
        heaviest = sorted(self.folded, key=lambda line: -line.value)[:12] if self.folded else []
        return "\n".join([str(self.summary), *(line.text for line in heaviest), self.error_text()[-600:]])


def check_summary(summary):
    """The ledger closes, in samples."""
    k = summary["kinds"]["on_cpu"]
    dropped = sum(k["dropped"].values())
    assert k["taken"] == k["delivered"] + dropped, f"taken is not delivered + dropped: {k}"
    assert k["ticks"] == k["idle"] + k["filtered"] + k["taken"], f"ticks are not accounted for: {k}"
    assert k["missed_by_kernel"] >= 0, k


def record_command(directory, command, *args, status=0, seconds=PATIENCE, **options):
    """Records a command from its first instruction to its end; the finished Recorder.

    The command's own stdout is a file of its own, `recorder.command_out`: --json wants stdout, so
    the command runs below a shell that gives it away.
    """
    out = Path(directory) / "command.out"
    quoted = ["sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", str(out), *map(str, command)]
    recorder = Recorder(directory, *args, "--", *quoted, **options)
    try:
        recorder.finish(status=status, seconds=seconds)
    finally:
        recorder.give_up()
    recorder.command_out = out.read_text() if out.exists() else ""
    return recorder


@contextlib.contextmanager
def recording(directory, *args, **options):
    """A recording around a block. The block may stop it; else it is stopped at the end."""
    recorder = Recorder(directory, *args, **options)
    try:
        recorder.wait_sampling()
        yield recorder
        if recorder.summary is None and recorder.status is None:
            if recorder.process.poll() is None:
                recorder.stop()
            recorder.finish()
    finally:
        recorder.give_up()


def run_for(seconds):
    """Lets a recording collect: the passing of time is what is asked for, not an order of events."""
    time.sleep(seconds)


# ------------------------------------------------------------------------------------ programs


def make_distinct(pattern, directory, count, prefix="distinct"):
    """`count` programs of one link that differ in the name of their function and their build-id."""
    data = Path(pattern).read_bytes()
    name, build_id = b"brief_work_000", b"flyball-test-id-0000"
    assert name in data and build_id in data, f"{pattern} has lost its patterns"
    made = {}
    for i in range(count):
        path = Path(directory) / f"{prefix}{i:03}"
        function = b"brief_work_%03d" % i
        path.write_bytes(data.replace(name, function).replace(build_id, b"flyball-test-id-%04d" % i))
        path.chmod(0o755)
        made[path.name] = (path, function.decode())
    return made


def build_id(path):
    """Of an ELF file, as readelf says it."""
    out = subprocess.run(["readelf", "-n", str(path)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", out)
    return found.group(1) if found else ""


def symbol_span(path, name):
    """Link-time [start, end) of a function and the segments to turn file positions into addresses."""
    out = subprocess.run(["readelf", "-Wsl", str(path)], capture_output=True, text=True, check=True).stdout
    span = None
    for line in out.splitlines():
        words = line.split()
        if len(words) >= 8 and words[3] == "FUNC" and words[7] == name:
            size = int(words[2], 0)
            span = int(words[1], 16), int(words[1], 16) + size
    segments = [tuple(int(w, 16) for w in (line.split()[1], line.split()[2], line.split()[4]))
                for line in out.splitlines() if line.strip().startswith("LOAD")]
    assert span, f"{path} has no function {name}"
    return span, segments


def file_span(path, name):
    """File positions [start, end) of a function."""
    (start, stop), segments = symbol_span(path, name)
    for offset, address, size in segments:
        if address <= start < address + size:
            return start - address + offset, stop - address + offset
    raise AssertionError(f"{path}: {name} lies in no segment")


def unified_cgroup():
    """Where cgroup v2 is mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        words = line.split()
        if words[2] == "cgroup2":
            return Path(words[1])
    raise AssertionError("no cgroup v2 is mounted: mount one with `mount -t cgroup2 none DIR`")


@contextlib.contextmanager
def cgroup(path):
    """A cgroup, made with its parents and removed with them."""
    made = []
    for part in [*reversed(Path(path).parents), Path(path)]:
        if not part.exists():
            part.mkdir()
            made.append(part)
    try:
        yield Path(path)
    finally:
        for part in reversed(made):
            wait_for(lambda p=part: remove_cgroup(p), f"{part} is empty")


def remove_cgroup(path):
    try:
        path.rmdir()
    except OSError:
        return False
    return True


def bpf_objects():
    """Ids of every BPF program, link and map of the machine."""
    found = set()
    for kind in ("prog", "link", "map"):
        out = subprocess.run(["bpftool", "-j", kind, "show"], capture_output=True, text=True, check=True).stdout
        found |= {(kind, item["id"], item.get("name", "")) for item in json.loads(out or "[]")}
    return found


def our_bpf_objects():
    """Those of flyball's: links have no name, so they are known by their program."""
    out = subprocess.run(["bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=True).stdout
    programs = {p["id"] for p in json.loads(out or "[]") if p.get("name", "").startswith("fly_")}
    out = subprocess.run(["bpftool", "-j", "link", "show"], capture_output=True, text=True, check=True).stdout
    links = {("link", item["id"]) for item in json.loads(out or "[]") if item.get("prog_id") in programs}
    out = subprocess.run(["bpftool", "-j", "map", "show"], capture_output=True, text=True, check=True).stdout
    maps = {("map", m["id"]) for m in json.loads(out or "[]") if m.get("name", "").startswith("fly_")}
    return {("prog", p) for p in programs} | links | maps
