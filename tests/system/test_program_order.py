# SPDX-License-Identifier: Apache-2.0
"""RING-2 on the loaded program itself: what the kernel runs asks before it reads.

Every path through the instructions is followed, so the layout that the compiler chose does not matter."""

import json
import re
import subprocess

import pytest
import rig

LINE = re.compile(r"^\s*(\d+): \(([0-9a-f]{2})\) (.*)$")
JUMP = re.compile(r"goto pc([+-]\d+)")


def bpftool(*args):
    done = subprocess.run(["bpftool", *map(str, args)], capture_output=True, check=True)
    return done.stdout.decode()


def program_id(pid):
    """The sampling program that a process holds."""
    for fd in rig.os.listdir(f"/proc/{pid}/fdinfo"):
        with rig.contextlib.suppress(FileNotFoundError):
            info = rig.Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
            if found := re.search(r"^prog_id:\s+(\d+)", info, re.M):
                about = json.loads(bpftool("-j", "prog", "show", "id", found[1]))
                if about["type"] == "perf_event":
                    return about
    raise AssertionError("no sampling program")


def main_program(text):
    """[(number, text)] of the first function; the others have a header of their own."""
    found = []
    for line in text.splitlines():
        if match := LINE.match(line):
            found.append((int(match[1]), match[3]))
        elif found and line and not line.startswith(";"):
            break
    return found


class Flow:
    def __init__(self, program):
        self.text = dict(program)
        numbers = [n for n, _ in program]
        after = dict(zip(numbers, numbers[1:], strict=False))
        self.next = {}
        for number, text in program:
            jump = JUMP.search(text)
            self.next[number] = [number + 1 + int(jump[1])] if jump else []
            if text != "exit" and not text.startswith("goto ") and number in after:
                self.next[number].append(after[number])
        self.start = numbers[0]

    def where(self, pattern):
        return {n for n, text in self.text.items() if re.search(pattern, text)}

    def where_counted(self, offset):
        """x = *(r + offset); x += 1; *(r + offset) = x"""
        found, numbers = set(), sorted(self.text)
        for a, b, c in zip(numbers, numbers[1:], numbers[2:], strict=False):
            load = re.fullmatch(rf"(r\d) = \*\(u64 \*\)\((r\d+) \+{offset}\)", self.text[a])
            if load and self.text[b] == f"{load[1]} += 1" and \
                    self.text[c] == f"*(u64 *)({load[2]} +{offset}) = {load[1]}":
                found.add(c)
        return found

    def where_only_read(self, offset):
        """Reads of u64 at an offset that are not part of a sum: counters may lie at the same one."""
        def is_summed(number, place):
            return any(self.text.get(n, "").startswith(f"{place} = ") for n in range(number + 1, number + 6))
        found = {n: re.fullmatch(rf"r\d = (\*\(u64 \*\)\(r\d \+{offset}\))", t) for n, t in self.text.items()}
        return {n for n, match in found.items() if match and not is_summed(n, match[1])}

    def reached(self, without):
        """All that can run when nothing in `without` does."""
        seen, todo = set(), [self.start]
        while todo:
            number = todo.pop()
            if number in seen or number in without:
                continue
            seen.add(number)
            todo += self.next[number]
        return seen


def offsets(about, name):
    """Byte offsets of a struct's members, by the program's BTF."""
    for kind in json.loads(bpftool("-j", "btf", "dump", "id", about["btf_id"]))["types"]:
        if kind["kind"] == "STRUCT" and kind["name"] == name:
            return {member["name"]: member["bits_offset"] // 8 for member in kind["members"]}
    raise AssertionError(f"no struct {name}")


def check_order(program, about):
    flow = Flow(program)
    control, counters = offsets(about, "fly_control"), offsets(about, "fly_counters")
    maps = {m["name"]: m["id"] for m in json.loads(bpftool("-j", "map", "list")) if m["id"] in about["map_ids"]}
    steps = [
        ("control", flow.where(rf"= map\[id:{maps['fly_control']}\]")),
        ("taken", flow.where_counted(counters["taken"])),
        ("suppressed", flow.where(rf"^[rw]\d = \*\(u32 \*\)\(r\d \+{control['suppress']}\)$")),
        ("watermark", flow.where(r"call bpf_ringbuf_query#")),
        ("budget", flow.where_only_read(control["cpu_budget_ns"])),
        ("context", flow.where(r"call (bpf_get_current_cgroup_id|bpf_get_current_comm)#")),
        # A kernel thread has no user stack, and what interrupts user mode no kernel stack.
        ("stacks", flow.where(r"call (bpf_get_stack|bpf_task_pt_regs|bpf_probe_read|bpf_copy_from|pc[+-])")),
    ]
    whole = flow.reached(set())
    for name, places in steps:
        assert places & whole, f"{name} is nowhere in the program"
    for (first, before), (second, after) in zip(steps, steps[1:], strict=False):
        early = flow.reached(before) & after
        assert not early, f"{second} is reached without {first}: {flow.text[min(early)]}"
    # One record, once all is known; nothing is reserved that could be left without its end.
    assert len(flow.where(r"call bpf_ringbuf_output#")) == 1 and not flow.where(r"call bpf_ringbuf_reserve")


@pytest.mark.parametrize("args", [["-a"], ["-a", "--unwind", "frame-pointers"], ["-p"]], ids=["tables", "fp", "process"])
def test_program_asks_before_it_reads(args, tmp_path, targets, workloads):
    target = targets.start(workloads / "split", "-t", 600)
    if args == ["-p"]:
        args = ["-p", target.pid]
    with rig.recording(tmp_path, *args) as recorder:
        about = program_id(recorder.main)
        program = main_program(bpftool("prog", "dump", "xlated", "id", about["id"]))
        check_order(program, about)
        # The same program with two of its calls exchanged is found out.
        one, two = "call bpf_ringbuf_query#", "call bpf_get_current_comm#"
        swapped = [(n, text.replace(one, two) if one in text else text.replace(two, one)) for n, text in program]
        with pytest.raises(AssertionError, match="reached without"):
            check_order(swapped, about)
