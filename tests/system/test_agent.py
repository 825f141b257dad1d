# SPDX-License-Identifier: Apache-2.0
"""The daemon: windows with exact ledgers in the store, whatever happens to it; what it says of itself."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import time

import pytest
import rig

HZ = 99
WINDOW_S = 1


class Agent:
    """flyball agent on a store and a socket of its own."""

    def __init__(self, directory, store=None, **keys):
        self.directory = directory
        self.store = store or directory / "store"
        self.socket = directory / "agent.sock"
        self.log = directory / "agent.log"
        lines = {"samplingFrequencyHz": HZ, "window": f"{WINDOW_S}s", **keys}
        store_keys = lines.pop("store_keys", {})
        http_keys = {"socket": f'"{self.socket}"', "address": '""', **lines.pop("http", {})}
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        text += "http:\n" + "".join(f"  {key}: {value}\n" for key, value in http_keys.items())
        if store_keys:
            text += "store:\n" + "".join(f"  {key}: {value}\n" for key, value in store_keys.items())
        self.config = directory / "agent.yaml"
        self.config.write_text(text)
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([rig.FLYBALL, "agent", "-c", self.config, "--store", self.store],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        rig.wait_for(self.answers, f"the agent to answer: {self.said()}")
        return self

    def said(self):
        return self.log.read_text(errors="replace")[-2000:]

    def answers(self):
        assert self.process.poll() is None, self.said()
        with contextlib.suppress(OSError):
            return self.get("/healthz")[0] == 200

    def get(self, path, **headers):
        connection = http.client.HTTPConnection("localhost", timeout=rig.PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.socket))
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def status(self):
        code, text = self.get("/v1/status")
        assert code == 200, text
        return json.loads(text)

    def wait_windows(self, count):
        return rig.wait_for(lambda: (s := self.status())["store"]["stored_blocks"] >= count and s,
                            f"{count} windows stored: {self.said()}")

    def end(self, number=signal.SIGTERM):
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(rig.PATIENCE)
        return code, time.monotonic() - started

    def blocks(self):
        with contextlib.closing(sqlite3.connect(f"file:{self.store}/store.db?mode=ro", uri=True)) as db:
            assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
            names = ("id", "start_ns", "end_ns", "taken", "taken_ns", "delivered", "delivered_ns")
            return [dict(zip(names, row)) for row in db.execute(f"select {', '.join(names)} from blocks order by id")]

    def give_up(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def held_bpf_objects(pid):
    """What its descriptors are, as the kernel says it."""
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError), open(entry.path) as info:
            ids = dict(line.split(":", 1) for line in info.read().splitlines() if ":" in line)
            kind = next((k for k in ("map", "link", "prog") if f"{k}_id" in ids), None)
            if kind:
                found.add((kind, int(ids[f"{kind}_id"])))
    return found


@pytest.fixture
def agents(tmp_path):
    started = []

    def make(store=None, name="a", **keys):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        started.append(Agent(directory, store, **keys))
        return started[-1]

    yield make
    for agent in started:
        agent.give_up()


def test_windows_are_exact_and_follow_each_other(agents, targets, workloads):
    rig.burn_every_cpu(targets, workloads / "split", 600)
    agent = agents().start()
    agent.wait_windows(4)
    code, took = agent.end()
    assert code == 0 and took < 5, (code, took, agent.said())
    blocks = agent.blocks()
    assert len(blocks) >= 5, "the open window was not stored at the end"
    # At full load the governor drops some before they are read: the log tells, the ledger closes.
    assert all(block["taken"] >= block["delivered"] and block["end_ns"] > block["start_ns"] for block in blocks)
    assert sum(block["delivered"] for block in blocks) > 0 and "ledger" not in agent.said()
    # Windows do not overlap, and no time is lost between them.
    for before, after in zip(blocks, blocks[1:]):
        assert 0 <= after["start_ns"] - before["end_ns"] < rig.SECOND // 5, (before, after)
    # Weights are the time that the CPUs were busy, at whatever rate; the governor starts at the lowest.
    span = (blocks[-1]["end_ns"] - blocks[0]["start_ns"]) * os.cpu_count()
    weight = sum(block["taken_ns"] for block in blocks)
    assert 0.6 * span < weight < 1.2 * span, (weight, span)


def test_killed_at_any_moment_loses_the_open_window_alone(agents, targets, workloads):
    rig.burn_every_cpu(targets, workloads / "split", 600)
    agent = agents()
    seen = 0
    for _ in range(50 if rig.LONG else 4):
        agent.start()
        moment = time.monotonic() + random.uniform(0.1, 2.5 * WINDOW_S)
        stored = 0
        while time.monotonic() < moment:
            stored = agent.status()["store"]["stored_blocks"]
        held = held_bpf_objects(agent.process.pid)
        assert {kind for kind, _ in held} == {"map", "link", "prog"}
        agent.process.kill()
        agent.process.wait()
        blocks = agent.blocks()
        assert len(blocks) >= seen + stored, "a block that the agent said was stored is not there"
        assert len({block["id"] for block in blocks}) == len(blocks)
        seen = len(blocks)
        rig.wait_for(lambda: not held & {item[:2] for item in rig.bpf_objects()}, "its BPF objects to be gone", 5)
    agent.start()
    agent.wait_windows(1)
    assert agent.end()[0] == 0
    assert len(agent.blocks()) > seen


def test_second_agent_is_refused_with_the_pid_of_the_first(agents):
    first = agents(name="first").start()
    second = subprocess.run([rig.FLYBALL, "agent", "-c", agents(name="second").config, "--store", first.store],
                            capture_output=True, text=True, check=False, timeout=rig.PATIENCE)
    assert second.returncode == 4 and str(first.process.pid) in second.stderr, second.stderr
    assert first.answers() and first.end()[0] == 0


def test_full_disk_is_told_and_profiling_goes_on(agents, targets, workloads, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", disk], check=True)
    try:
        rig.burn_every_cpu(targets, workloads / "split", 600)
        agent = agents(store=disk / "store", store_keys={"maxBytes": "1536KiB"}).start()
        agent.wait_windows(1)
        filler = disk / "filler"
        with contextlib.suppress(OSError), open(filler, "wb") as out:
            while True:
                out.write(bytes(4096))
                out.flush()
        free = os.statvfs(disk)
        assert free.f_bavail == 0, "the disk is not full"
        told = rig.wait_for(lambda: (s := agent.status()["store"])["fault"] and s, "the full disk to be told")
        assert told["waiting_blocks"] > 0
        code, text = agent.get("/readyz")
        assert code == 503 and "stored" in text
        taken = agent.status()["ledger"]["taken"]
        rig.wait_for(lambda: agent.status()["ledger"]["taken"] > taken, "profiling to go on")
        filler.unlink()
        rig.wait_for(lambda: not agent.status()["store"]["fault"], "what waited to be stored", 60)
        assert agent.get("/readyz")[0] == 200 and agent.status()["store"]["lost_blocks"] == 0
        assert agent.end()[0] == 0
        blocks = agent.blocks()
        assert all(b["start_ns"] - a["end_ns"] < rig.SECOND // 5 for a, b in zip(blocks, blocks[1:])), "a window is missing"
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_status_is_what_others_see(agents, targets, workloads):
    rig.burn_every_cpu(targets, workloads / "split", 600)
    agent = agents().start()
    agent.wait_windows(2)
    status = agent.status()
    assert status["pid"] == agent.process.pid and status["hz"] == HZ and status["windows"]["inexact"] == 0
    ledger = status["ledger"]
    assert ledger["taken"] == ledger["delivered"] + sum(ledger["dropped"].values())
    assert ledger["ticks"] == ledger["idle"] + ledger["filtered"] + ledger["taken"]
    assert 0 < status["cost"]["kernel_memory_bytes"] <= status["cost"]["kernel_memory_budget_bytes"]
    governor = status["governor"]
    assert governor["budget_ppm"] == 15_000 and governor["capacity_ns"] > 0
    tiers = sum(governor[f"tier_{name}_ns"] for name in ("healthy", "busy", "saturated"))
    assert 0 < tiers <= status["uptime_ns"] and governor["tier_saturated_ns"] > 0, "every CPU is busy"
    assert stat.S_IMODE(os.stat(agent.socket).st_mode) == 0o660
    text = subprocess.run([rig.FLYBALL, "status", "--socket", agent.socket], capture_output=True, text=True, check=False)
    assert "budget     1.50 % of the node" in text.stdout, text
    assert text.returncode == 0 and f"process {agent.process.pid}," in text.stdout, text
    as_json = subprocess.run([rig.FLYBALL, "status", "--socket", agent.socket, "--json"], capture_output=True, text=True,
                             check=True)
    assert json.loads(as_json.stdout)["pid"] == agent.process.pid
    assert agent.end()[0] == 0
    gone = subprocess.run([rig.FLYBALL, "status", "--socket", agent.socket], capture_output=True, text=True, check=False)
    assert gone.returncode == 4 and "no agent answers" in gone.stderr, gone


def test_metrics_are_prometheus_text(agents):
    agent = agents().start()
    code, text = agent.get("/metrics")
    assert code == 200 and text.endswith("\n")
    types, samples = {}, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, words = line[7:].split(" ", 1)
            assert words.endswith(".") and name not in types, line
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split()
            types[name] = kind
            assert name.endswith("_total") == (kind == "counter"), line
        else:
            found = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? [0-9.]+', line)
            assert found and found[1] in types, line
            assert line.rsplit(" ", 1)[0] not in samples, f"twice: {line}"
            samples.add(line.rsplit(" ", 1)[0])
    assert {sample.split("{")[0] for sample in samples} == set(types)
    assert agent.end()[0] == 0


def test_tcp_shows_little_without_the_token(agents, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token_file = tmp_path / "token"
    agent = agents(http={"address": f'"127.0.0.1:{port}"', "tokenFile": f'"{token_file}"'}).start()

    def ask(path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=rig.PATIENCE)
        connection.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return connection.getresponse().status

    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    token = token_file.read_text().strip()
    assert [ask(p) for p in ("/metrics", "/healthz", "/readyz")] == [200] * 3
    assert ask("/v1/status") == 401 and ask("/v1/status", Authorization=f"Bearer {token[:-1]}0x") == 401
    assert ask("/v1/status", Authorization=f"Bearer {token}") == 200
    # Nothing tells whether a path is there.
    assert ask("/nothing") == 401 and ask("/../../etc/passwd") == 401 and ask("/%2e%2e/etc/passwd") == 401
    assert ask("/nothing", Authorization=f"Bearer {token}") == 404
    # A page of another site, and a name that it lets point here.
    assert ask("/metrics", Host="evil.example") == 403 and ask("/metrics", Host="127.0.0.1.evil.example") == 403
    assert ask("/metrics", Origin="http://evil.example") == 403
    assert ask("/metrics", Host=f"localhost:{port}", Origin=f"http://localhost:{port}") == 200
    assert ask("/metrics", method="POST") == 405 and ask("/metrics", method="POST", body="x" * 10) == 413
    assert ask("/metrics", X_Long="y" * 100_000) in (413, 414, 431)
    # Many that say nothing do not keep others out for good.
    idle = []
    for _ in range(200):
        with contextlib.suppress(OSError):
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=2))
    assert agent.get("/healthz")[0] == 200, "the socket must not be kept out by TCP"
    for s in idle:
        s.close()
    rig.wait_for(lambda: ask("/healthz") == 200, "TCP to answer again")
    assert agent.status()["http"]["refused"] >= 8
    assert agent.end()[0] == 0
