# SPDX-License-Identifier: Apache-2.0
"""flyball on the kernels it promises to support, in QEMU guests without KVM.

Each kernel boots twice (about 6 s each): once to prove the rig, once with the built flyball
(FLYBALL_BUILD, default build/). Nothing here is skipped: without QEMU or a kernel the tests fail
with the sentence that `run` gave. Guest output is kept in FLYBALL_KERNELS_OUT if that is set.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
import chains  # noqa: E402
BUILD = Path(os.environ.get("FLYBALL_BUILD", HERE.parents[1] / "build"))
KERNELS = ["6.1", "6.12"]
BINARIES = ["flyball", "flyball-opener", "flyball-reader"]
HZ = 99
FAMILIES = ["O2-pie-gcc-nofp-cet", "O2-static-clang-nofp-nocet"]
SHARES = {"work_a": 0.60, "work_b": 0.30, "work_c": 0.10}


class Guest:
    """One finished guest: its exit status, its output, the files it left."""

    def __init__(self, kernel, script, files, out):
        self.kernel = kernel
        self.out = out
        done = subprocess.run(
            [HERE / "run", "--kernel", kernel, "--script", HERE / script,
             "--files", " ".join(map(str, files)), "--out", out, "--timeout", "400"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.status = done.returncode
        self.output = done.stdout
        if self.status == 125:
            said = done.stderr.strip().splitlines() or ["run failed without a word"]
            pytest.fail("\n".join(said[-22:]), pytrace=False)

    def text(self, name):
        path = self.out / name
        return path.read_text(errors="replace") if path.exists() else ""

    def step(self, name):
        """The exit status of a step, and what to show when it is the wrong one."""
        said = self.text(f"{name}.err") or self.text(f"{name}.out")
        return int(self.text(f"{name}.status") or -1), said[-3000:]

    def json(self, name):
        text = self.text(f"{name}.out")
        try:
            return json.loads(text)
        except ValueError as error:
            pytest.fail(f"{name}: stdout is not one JSON object ({error}): {text[:500]!r}",
                        pytrace=False)

    def stacks(self, name):
        """The folded file: a list of (comm, frames, nanoseconds)."""
        stacks = []
        for line in self.text(f"{name}.folded").splitlines():
            stack, _, value = line.rpartition(" ")
            comm, *frames = stack.split(";")
            stacks.append((comm, frames, int(value)))
        return stacks


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request):
    return request.param


@pytest.fixture(scope="module")
def out(kernel, tmp_path_factory):
    kept = os.environ.get("FLYBALL_KERNELS_OUT")
    return Path(kept).resolve() / kernel if kept else tmp_path_factory.mktemp(f"kernel-{kernel}")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles one program of this folder."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_one(name, *flags):
        subprocess.run(
            [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-g", "-fno-omit-frame-pointer",
             *flags, "-o", folder / name, HERE / f"{name}.c"], check=True)
        return folder / name

    return compile_one


@pytest.fixture(scope="module")
def recorded(kernel, compiled, out):
    """The guest that ran guest-record.sh with the built flyball."""
    binaries = [BUILD / name for name in BINARIES]
    for binary in binaries:
        if not binary.exists():
            pytest.fail(f"{binary} is not built: run scripts/quickstart or meson first.",
                        pytrace=False)
    split = compiled("guest-split")
    spin = split.parent / "bpfspin"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-o", spin,
                    HERE.parent / "workloads" / "bpfspin.c", "-lbpf"], check=True)
    for family in FAMILIES:
        subprocess.run([HERE.parent / "unwind" / "build", split.parent, "one", family], check=True)
    families = [split.parent / f"family.{family}" for family in FAMILIES]
    return Guest(kernel, "guest-record.sh", [*binaries, split, spin, *families], out / "record")


def assert_ledger_exact(on_cpu):
    dropped = sum(on_cpu["dropped"].values())
    assert on_cpu["taken"] == on_cpu["delivered"] + dropped
    assert on_cpu["ticks"] == on_cpu["idle"] + on_cpu["filtered"] + on_cpu["taken"]
    assert on_cpu["delivered"] > 0


def is_near(value, wanted, part):
    return abs(value - wanted) <= part * wanted


def test_kernels__rig__boots_and_hands_files_back(kernel, compiled, out):
    guest = Guest(kernel, "guest-smoke.sh", [compiled("rig-probe", "-static")], out / "smoke")
    assert guest.status == 0, guest.output
    assert guest.text("uname").split()[2].startswith(f"{kernel}.")
    data = (guest.out / "random").read_bytes()
    assert hashlib.sha256(data).hexdigest() == guest.text("random.sha256").strip()


def test_kernels__walks_by_tables__are_right_and_in_budget(kernel, out):
    names = ["test_kernel_unwind", "test_kernel_states"]
    subprocess.run(["ninja", "-C", BUILD, *(f"tests/{name}" for name in names)], check=True,
                   stdout=subprocess.DEVNULL)
    library = subprocess.run([os.environ.get("CC", "cc"), "-print-file-name=libgcc_s.so.1"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    files = [*(BUILD / "tests" / name for name in names), "/bin/true",
             f"{Path(library).resolve()}=/lib/x86_64-linux-gnu/libgcc_s.so.1"]
    guest = Guest(kernel, "guest-unwind.sh", files, out / "unwind")
    assert guest.text("test_kernel_unwind.status").strip() == "0", guest.text("test_kernel_unwind.out")
    said = guest.text("test_kernel_states.out")
    assert "[       OK ] kernel_states__programs__are_in_budget" in said, said


def test_kernels__doctor__finds_nothing_missing(recorded):
    status, said = recorded.step("doctor")
    assert status == 0, said


def test_kernels__plan__is_printed(recorded):
    status, said = recorded.step("plan")
    assert status == 0, said


@pytest.mark.parametrize("step", ["split", "node"])
def test_kernels__record__exits_0(recorded, step):
    status, said = recorded.step(step)
    assert status == 0, said


@pytest.mark.parametrize("step", ["split", "node"])
def test_kernels__ledger__is_exact(recorded, step):
    assert_ledger_exact(recorded.json(step)["kinds"]["on_cpu"])


def test_kernels__record__passes_the_commands_exit_status_on(recorded):
    assert recorded.json("split")["exit_status"] == 0


def test_kernels__shares__are_60_30_10(recorded):
    stacks = recorded.stacks("split")
    total = sum(ns for _, _, ns in stacks)
    assert total > 0
    shares = {name: sum(ns for _, frames, ns in stacks if name in frames) / total
              for name in SHARES}
    for name, wanted in SHARES.items():
        assert abs(shares[name] - wanted) <= 0.06, shares


def test_kernels__user_stacks__reach_main(recorded):
    stacks = [s for s in recorded.stacks("split") if any(name in s[1] for name in SHARES)]
    total = sum(ns for _, _, ns in stacks)
    reached = sum(ns for _, frames, ns in stacks if "main" in frames)
    assert total > 0 and reached >= 0.95 * total


def test_kernels__weights__sum_to_the_programs_rusage(recorded):
    cpu_ns = int(recorded.text("split.cpu_ns") or 0)
    assert cpu_ns >= 8e9
    on_cpu = recorded.json("split")["kinds"]["on_cpu"]
    assert is_near(on_cpu["weight_ns"], cpu_ns, 0.10), (on_cpu, cpu_ns)
    folded = sum(ns for comm, _, ns in recorded.stacks("split") if comm == "guest-split")
    assert is_near(folded, cpu_ns, 0.10), (folded, cpu_ns)


def test_kernels__ticks__come_on_every_cpu(recorded):
    report = recorded.json("node")
    on_cpu = report["kinds"]["on_cpu"]
    wanted = report["cpus"] * HZ * report["duration_ns"] / 1e9
    assert report["cpus"] == 2
    assert 0.5 * wanted <= on_cpu["ticks"] <= 1.1 * wanted, (on_cpu, wanted)


def test_kernels__kernel_frames__are_named(recorded):
    stacks = recorded.stacks("node")
    kernel = [(frame, ns) for _, frames, ns in stacks for frame in frames
              if frame.endswith("_[k]")]
    total = sum(ns for _, ns in kernel)
    named = sum(ns for frame, ns in kernel if re.fullmatch(r"[A-Za-z_][\w.$@]*_\[k\]", frame))
    assert total > 0 and named >= 0.98 * total, [f for f, _ in kernel][:20]
    reading = sum(ns for comm, frames, ns in stacks if comm == "dd" and "vfs_read_[k]" in frames)
    whole = sum(ns for comm, _, ns in stacks if comm == "dd")
    assert whole > 0 and reading >= 0.8 * whole, [s for s in stacks if s[0] == "dd"][:10]


def test_kernels__bpf_trampoline__has_its_name(recorded):
    status, said = recorded.step("trampoline")
    assert status == 0, said
    spin = re.compile(r";bpf_fentry_test1_\[k\];bpf_trampoline_\w+_\[k\];bpf_prog_[0-9a-f]{16}_bpfspin_\[k\]")
    stacks = recorded.stacks("trampoline")
    inside = [(";".join(frames), ns) for _, frames, ns in stacks if "bpf_fentry_test1_[k]" in frames]
    total = sum(ns for _, ns in inside)
    named = sum(ns for stack, ns in inside if spin.search(stack))
    assert total > 0 and named >= 0.8 * total, sorted(inside, key=lambda s: -s[1])[:8] or stacks[:8]


def test_kernels__node__shows_both_programs(recorded):
    assert {"dd", "guest-split"} <= {comm for comm, _, _ in recorded.stacks("node")}


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels__unwinding__is_whole(recorded, family):
    """Chains of the corpus's main programs, root to leaf, and the deep recursion among them. An emulated CPU may
    need more than a walk's time for the deepest; then they are cut, and say so."""
    status, said = recorded.step(f"family.{family}")
    assert status == 0, said
    judge, verdict = chains.family_chains(family), chains.Verdict()
    for comm, frames, ns in recorded.stacks(f"family.{family}"):
        user = [f for f in frames if not f.endswith("_[k]") and not (f.startswith("[") and f.endswith("]"))]
        cut = next((f for f in frames if f.startswith(("[incomplete", "[truncated"))), "")
        if comm.startswith("family") and user and "time_budget" not in cut:
            verdict.add(*judge.judge(user, bool(cut)), user, cut, ns // (10**9 // HZ))
    whole, every = verdict.share()
    assert not verdict.wrong and whole >= 0.99 * every > 50, verdict.text()
    assert ("whole", "deep") in verdict.counts, verdict.text()
