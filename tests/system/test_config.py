# SPDX-License-Identifier: Apache-2.0
"""`flyball agent --check-config` and `--print-config`: what is accepted, and what each mistake is told as."""

import json
import os
import re
import subprocess

import pytest
import rig

CONFIGS = rig.ROOT / "tests" / "fuzz" / "corpus" / "fuzz_config"


def agent(*args, environment=None, **options):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLYBALL_")}
    return rig.flyball("agent", *args, env={**env, **(environment or {})}, **options)


def check(path, status, *args, **options):
    done = agent("-c", path, "--check-config", "--json", *args, **options)
    assert done.returncode == status and done.stderr == b"", done
    said = json.loads(done.stdout)
    assert said["is_right"] == (status == 0) == (not said["errors"])
    return said


def shown(*args, **options):
    done = agent("--print-config", "--json", *args, **options)
    assert done.returncode == 0, done
    return {k["key"]: k for k in json.loads(done.stdout)["keys"]}


def test_bad_cpu_is_refused_by_its_directives():
    errors = check(CONFIGS / "bad-cpu.yaml", 1)["errors"]
    assert [(e["directive"], e["key"], e["line"]) for e in errors] == [
        ("CPU-2", "samplingFrequencyHz", 2), ("CPU-3", "dynamicThrottlingEnabled", 6),
        ("CPU-1", "cpuBudgetPercent", 7)]
    assert "line 6" in errors[0]["problem"] and "line 2" in errors[1]["problem"]


def test_bad_memory_is_refused_by_its_directives():
    errors = check(CONFIGS / "bad-memory.yaml", 1)["errors"]
    assert [(e["directive"], e["key"], e["line"]) for e in errors] == [
        ("MEM-2", "ebpf.stackMapType", 4), ("MEM-1", "ebpf.maxStackEntries", 5),
        ("MEM-5", "ebpf.dwarfParsingInKernel", 6), ("MEM-1", "ebpf.unwindTableAllocationBytes", 7)]


@pytest.mark.parametrize("name", ["good-cpu", "good-memory", "targets"])
def test_good_ones_are_accepted_and_obeyed(name):
    path = CONFIGS / f"{name}.yaml"
    check(path, 0)
    values = {k: v["value"] for k, v in shown("-c", path).items()}
    if name == "good-cpu":
        assert values["samplingFrequencyHz"] == "19" and values["ringBufferSizeKb"] == "8192"
    elif name == "good-memory":
        assert values["ebpf.unwindTableAllocationBytes"] == "64Mi"
        assert values["kernelMemoryGuard.maxKernelBudgetPercentOfRam"] == "2.5"
        assert values["resources.requests.memory"] == "512Mi"
    else:
        assert values["export.targets[0].timeout"] == "1500ms"
        assert values["export.targets[1].kind"] == "parca"


def test_keys_that_map_to_something_else_are_noted():
    notes = check(CONFIGS / "good-memory.yaml", 0)["notes"]
    assert {n["key"]: n["line"] for n in notes} == {
        "ebpf.stackMapType": 4, "ebpf.maxStackEntries": 5, "ebpf.unwindFormat": 6, "ebpf.evictionPolicy": 9,
        "resources.requests.memory": 16}


TARGET = "export:\n  targets:\n  - "
# name: text, then per error: line, column, key, directive, part of the fix.
MALFORMED = {
    "unknown": ("samplingFrequency: 19\n", (1, 1, "samplingFrequency", "", "samplingFrequencyHz?")),
    "unknown_far": ("zzzzzzzzzz: 19\n", (1, 1, "zzzzzzzzzz", "", "docs/configuration.md")),
    "unknown_case": ("SamplingFrequencyHZ: 19\n", (1, 1, "SamplingFrequencyHZ", "", "samplingFrequencyHz?")),
    "unknown_snake": ("ebpf:\n  stack_map_type: x\n", (2, 3, "ebpf.stack_map_type", "", "ebpf.stackMapType?")),
    "unknown_place": ("maxStackEntries: 1\n", (1, 1, "maxStackEntries", "", "ebpf.maxStackEntries?")),
    "unknown_section": ("stor: {maxAge: 1d}\n", (1, 1, "stor", "", "")),
    "dotted": ("store.maxAge: 1d\n", (1, 1, "store.maxAge", "", "indented below")),
    "text_for_count": ("samplingFrequencyHz: often\n", (1, 22, "samplingFrequencyHz", "", "from 1 to 10000")),
    "quoted_count": ('samplingFrequencyHz: "19"\n', (1, 22, "samplingFrequencyHz", "", "whole number")),
    "fraction_for_count": ("maxStackDepth: 1.5\n", (1, 16, "maxStackDepth", "", "whole number")),
    "exponent": ("samplingFrequencyHz: 1e2\n", (1, 22, "samplingFrequencyHz", "", "whole number")),
    "hexadecimal": ("samplingFrequencyHz: 0x10\n", (1, 22, "samplingFrequencyHz", "", "whole number")),
    "negative": ("samplingFrequencyHz: -5\n", (1, 22, "samplingFrequencyHz", "", "from 1")),
    "zero": ("samplingFrequencyHz: 0\n", (1, 22, "samplingFrequencyHz", "", "from 1")),
    "huge": ("maxStackDepth: 99999999999999999999999\n", (1, 16, "maxStackDepth", "", "1024")),
    "huge_bytes": ("store:\n  maxBytes: 99999999999Ti\n", (2, 13, "store.maxBytes", "", "64Ti")),
    "huge_percent": (f"cpuBudgetPercent: {'9' * 60}\n", (1, 19, "cpuBudgetPercent", "CPU-1", "up to 5")),
    "huge_time": (f"window: {'9' * 40}h\n", (1, 9, "window", "", "from 1s to 5m")),
    "power_of_two": ("ringBufferSizeKb: 1000\n", (1, 19, "ringBufferSizeKb", "MEM-1", "power of two")),
    "percent_zero": ("cpuBudgetPercent: 0\n", (1, 19, "cpuBudgetPercent", "CPU-1", "above 0")),
    "percent_sign": ("cpuBudgetPercent: 1.5%\n", (1, 19, "cpuBudgetPercent", "", "above 0")),
    "nan": ("cpuBudgetPercent: .nan\n", (1, 19, "cpuBudgetPercent", "", "above 0")),
    "ram_ceiling": ("kernelMemoryGuard: {maxKernelBudgetPercentOfRam: 5.1}\n",
                    (1, 50, "kernelMemoryGuard.maxKernelBudgetPercentOfRam", "MEM-1", "up to 5")),
    "yes": ("dynamicThrottlingEnabled: yes\n", (1, 27, "dynamicThrottlingEnabled", "", "true or false")),
    "throttling_off": ("dynamicThrottlingEnabled: false\n", (1, 27, "dynamicThrottlingEnabled", "CPU-3", "true")),
    "no_drops": ("kernelMemoryGuard: {dropSamplesOnMemoryPressure: false}\n",
                 (1, 50, "kernelMemoryGuard.dropSamplesOnMemoryPressure", "MEM-6", "true")),
    "not_strict": ("kernelMemoryGuard: {bpfMemlockEnforcement: DISABLED}\n",
                   (1, 44, "kernelMemoryGuard.bpfMemlockEnforcement", "MEM-6", "STRICT")),
    "raw_format": ("ebpf: {unwindFormat: EH_FRAME}\n", (1, 22, "ebpf.unwindFormat", "MEM-5", "SFRAME_COMPACT")),
    "eviction": ("ebpf: {evictionPolicy: CLEAR_ALL}\n", (1, 24, "ebpf.evictionPolicy", "MEM-4", "LRU_ON")),
    "choice": ("unwindStrategy: magic\n", (1, 17, "unwindStrategy", "", "dwarf or framePointers")),
    "choice_case": ("log: {level: INFO}\n", (1, 14, "log.level", "", "warn, info or debug")),
    "ambiguous_unit": ("resources: {limits: {memory: 512M}}\n", (1, 30, "resources.limits.memory", "", "32Mi")),
    "request_above_limit": ("resources:\n  limits: {memory: 512Mi}\n  requests: {memory: 1Gi}\n",
                            (3, 22, "resources.requests.memory", "", "at most")),
    "time_unit": ("store: {maxAge: 1w}\n", (1, 17, "store.maxAge", "", "3650d")),
    "no_value": ("samplingFrequencyHz:\nwindow: 5s\n", (1, 21, "samplingFrequencyHz", "", "whole number")),
    "list_for_value": ("window: [5s]\n", (1, 9, "window", "", "a time")),
    "value_for_list": ("debuginfod: {urls: https://a}\n", (1, 20, "debuginfod.urls", "", "a list")),
    "list_in_list": ("debuginfod: {urls: [[https://a]]}\n", (1, 21, "debuginfod.urls", "", "a list")),
    "value_for_section": ("store: /x\n", (1, 8, "store", "", "below it")),
    "relative_path": ("store: {directory: data}\n", (1, 20, "store.directory", "", "from /")),
    "control": ('store: {directory: "/a\\nb"}\n', (1, 20, "store.directory", "", "from /")),
    "nul_escape": ('store: {directory: "/a\\0b"}\n', (1, 20, "store.directory", "", "from /")),
    "uid": ("policy: {exclude: {uids: [0, root]}}\n", (1, 30, "policy.exclude.uids", "", "user id")),
    "comm": ("policy:\n  include:\n    comms:\n    - sixteen-letters-\n",
             (4, 7, "policy.include.comms", "", "15 bytes")),
    "host_name": ("http: {address: 'localhost:7777'}\n", (1, 17, "http.address", "", "127.0.0.1:7777")),
    "port": ("http: {address: '127.0.0.1:77777'}\n", (1, 17, "http.address", "", "127.0.0.1:7777")),
    "open_to_all": ("http: {address: '0.0.0.0:7777'}\n", (1, 17, "http.address", "", "tokenFile")),
    "tls_half": ("http: {tls: {certFile: /c}}\n", (1, 24, "http.tls.certFile", "", "http.tls.keyFile")),
    "target_bare": (TARGET + "name: a\n", (3, 5, "export.targets[].kind", "", "otlp-grpc"),
                    (3, 5, "export.targets[].endpoint", "", "https://")),
    "target_url": (TARGET + "kind: parca\n    endpoint: collector:4317\n",
                   (4, 15, "export.targets[].endpoint", "", "https://")),
    "target_password": (TARGET + "kind: parca\n    endpoint: https://me:secret@host\n",
                        (4, 15, "export.targets[].endpoint", "", "https://")),
    "target_tls": (TARGET + "{kind: parca, endpoint: 'http://a', tls: {caFile: /a}}\n",
                   (3, 29, "export.targets[].endpoint", "", "https://")),
    "target_header": (TARGET + "{kind: parca, endpoint: 'http://a', headers: {'a b': c}}\n",
                      (3, 58, "export.targets[].headers", "", "NAME: VALUE")),
    "target_unknown": (TARGET + "{kind: parca, endpoint: 'http://a', insecure: true}\n",
                       (3, 41, "export.targets[].insecure", "", "docs/")),
    "targets_no_list": ("export: {targets: {kind: parca}}\n", (1, 19, "export.targets", "", "a list")),
    "twice": ("window: 5s\nwindow: 5s\n", (2, 1, "window", "", "one of the two")),
    "twice_section": ("log: {level: info}\nwindow: 5s\nlog: {format: json}\n", (3, 1, "log", "", "one of the two")),
    "twice_unknown": ("abcdefgh: 1\nabcdefgh: 1\n", (1, 1, "abcdefgh", "", ""), (2, 1, "abcdefgh", "", "one of")),
    "anchor": ("window: &a 5s\n", (1, 9, "", "", "take it away")),
    "alias": ("log: {level: *a}\n", (1, 14, "", "", "value itself"), (1, 14, "log.level", "", "info")),
    "merge": ("<<: {window: 5s}\n", (1, 1, "<<", "", "")),
    "tag": ("samplingFrequencyHz: !!int 19\n", (1, 22, "", "", "take it away")),
    "two_documents": ("window: 5s\n---\nwindow: 6s\n", (2, 1, "", "", "one")),
    "no_mapping": ("- window\n", (1, 1, "", "", "KEY: VALUE")),
    "plain_text": ("hello\n", (1, 1, "", "", "KEY: VALUE")),
    "tab": ("log:\n\tlevel: info\n", (2, 1, "", "", "no tabs")),
    "open_bracket": ("log: {level: info\n", (2, 1, "", "", "brackets")),
    "open_quote": ("store: {directory: \"/a}\n", (2, 1, "", "", "quotes")),
    "complex_key": ("? [a, b]\n: c\nwindow: x\n", (1, 3, "", "", "KEY: VALUE"), (3, 9, "window", "", "a time")),
    "nul": ("window: 5s\nlog:\0\n", (2, 5, "", "", "UTF-8")),
    "not_utf8": (b"window: 5s\n# \xff\xfe\n", (2, 3, "", "", "UTF-8")),
    "surrogate": (b"window: 5s # \xed\xa0\x80\n", (1, 14, "", "", "UTF-8")),
    "utf16": ("window: 5s\n".encode("utf-16"), (1, 1, "", "", "UTF-8")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name, tmp_path):
    text, *wanted = MALFORMED[name]
    path = tmp_path / "node.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    errors = check(path, 1)["errors"]
    assert [(e["line"], e["column"], e["key"], e["directive"]) for e in errors] == [w[:4] for w in wanted], errors
    for error, (*_, fix) in zip(errors, wanted):
        assert error["problem"] and error["fix"] and fix in error["fix"], error
    done = agent("-c", path, "--check-config")
    assert done.returncode == 1 and done.stdout == b""
    lines = [line for line in done.stderr.decode().splitlines() if " note: " not in line]
    for line, (at, column, key, directive, _) in zip(lines, wanted):
        assert line.startswith(f"{path}:{at}:{column}: {key}") and ". Fix: " in line
        assert not directive or f" [{directive}]" in line
    assert len(lines) == len(wanted)
    done = agent("-c", path, "--print-config")
    assert done.returncode == 1 and done.stdout == b"" and done.stderr


def test_all_errors_come_at_once(tmp_path):
    singles = [t for n, (t, *w) in MALFORMED.items() if len(w) == 1 and w[0][2] and isinstance(t, str)]
    text, seen = "", set()
    for single in singles:
        sections = set(re.findall(r"^(\S+?):", single, re.M))
        if not sections & seen:
            seen |= sections
            text += single
    path = tmp_path / "node.yaml"
    path.write_text(text)
    errors = check(path, 1)["errors"]
    assert len(errors) >= 12 and [e["line"] for e in errors] == sorted(e["line"] for e in errors)


def bomb():
    text = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdefgh", "bcdefghi"):
        text += f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    return text.encode()


@pytest.mark.parametrize("text", [
    bomb(), b"a: " + b"[" * 200000, b"a: " + b"{a: " * 50000, b"- " * 100000, b"? " * 100000,
    b"".join(b" " * i + b"a:\n" for i in range(600)), b"[" * (10 << 20), b"a: 'x" * 40000, b"#" * (10 << 20),
    b"".join(b"k%d: 1\n" % i for i in range(20000)), b"window: 5s\n" * 20000, b"\0" * (1 << 20), b"",
    b"log: {level: " + b"a" * 200000 + b"}\n", b"log: {" + b"a, " * 80000 + b"}\n", b"%YAML 9.9\n---\n",
    b"policy: {include: {uids: [" + b"1, " * 80000 + b"]}}\n", b"k" * 200000 + b": 1\n",
], ids=["aliases", "nested lists", "nested mappings", "nested items", "nested keys", "stairs", "10 MiB nested", "quotes",
        "10 MiB comment", "unknown keys", "one key", "NULs", "nothing", "long value", "many keys", "version",
        "long list", "long key"])
def test_hostile_texts_are_refused_in_little_time_and_memory(text, tmp_path):
    path = tmp_path / "node.yaml"
    path.write_bytes(text)
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen(["prlimit", f"--data={64 << 20}", rig.FLYBALL, "agent", "-c", path, "--check-config",
                                    "--json"], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    said = json.loads((tmp_path / "out").read_bytes())
    assert process.returncode == (1 if text else 0)
    assert len(said["errors"]) <= 100 and bool(said["errors"]) == bool(text)
    assert usage.ru_utime < 2


def test_sources_in_their_order(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("store: {directory: /file, maxBytes: 2Gi, maxAge: 3d}\nlog: {level: error}\n")
    environment = {"FLYBALL_STORE_DIRECTORY": "/environment", "FLYBALL_STORE_MAX_BYTES": "3Gi",
                   "FLYBALL_POLICY_EXCLUDE_COMMS": "a, b", "FLYBALL_PORT": "tcp://10.0.0.1:80"}
    keys = shown("-c", path, "--store", "/flag", "-v", environment=environment)

    def of(key):
        return keys[key]["value"], keys[key]["source"], keys[key]["line"], keys[key]["name"]
    assert of("store.directory") == ('"/flag"', "flag", None, "--store")
    assert of("store.maxBytes") == ("3Gi", "environment", None, "FLYBALL_STORE_MAX_BYTES")
    assert of("store.maxAge") == ("3d", "file", 1, None)
    assert of("policy.exclude.comms") == ('["a", "b"]', "environment", None, "FLYBALL_POLICY_EXCLUDE_COMMS")
    assert of("log.level") == ("debug", "flag", None, "-v")
    assert of("window") == ("10s", "default", None, None)
    text = agent("-c", path, "--print-config", "--store", "/flag", environment=environment).stdout.decode()
    assert re.search(r'directory: "/flag" +# flag --store\n', text)
    assert re.search(rf"maxAge: 3d +# {re.escape(str(path))}:1:50\n", text)


def test_every_variable_is_obeyed_and_told(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("")
    for key, entry in shown().items():
        name = entry["variable"]
        assert name == "FLYBALL_" + re.sub(r"([A-Z])", r"_\1", key).replace(".", "_").upper()
        found = check(path, 1, environment={name: "\x01"})["errors"]
        assert [(e["source"], e["name"], e["key"]) for e in found] == [("environment", name, key)]
        done = agent("--check-config", environment={name: "\x01"})
        assert done.stderr.decode().startswith(f"environment {name}: {key}: ")


def test_mistyped_variable_is_a_note(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("window: 5s\n")
    notes = check(path, 0, environment={"FLYBALL_STORE_MAXBYTES": "1Gi", "FLYBALL_SERVICE_HOST": "x"})["notes"]
    assert [(n["key"], n["fix"]) for n in notes] == [("FLYBALL_STORE_MAXBYTES", "write FLYBALL_STORE_MAX_BYTES")]


def test_flag_and_variable_are_checked_too(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("dynamicThrottlingEnabled: false\n")
    errors = check(path, 1, "--store", "here", environment={"FLYBALL_SAMPLING_FREQUENCY_HZ": "97"})["errors"]
    assert [(e["source"], e["key"], e["directive"]) for e in errors] == [
        ("file", "dynamicThrottlingEnabled", "CPU-3"), ("environment", "samplingFrequencyHz", "CPU-2"),
        ("flag", "store.directory", "")]


def test_last_tier_may_be_fixed(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("dynamicThrottlingEnabled: false\nsamplingFrequencyHz: 5\nunwindStrategy: framePointers\n"
                    "maxStackDepth: 32\n")
    check(path, 0)


@pytest.mark.parametrize("name", ["good-cpu", "good-memory", "targets"])
def test_what_is_printed_can_be_read_again(name, tmp_path):
    path = tmp_path / "again.yaml"
    done = agent("-c", CONFIGS / f"{name}.yaml", "--print-config")
    path.write_bytes(done.stdout)
    before, after = shown("-c", CONFIGS / f"{name}.yaml"), shown("-c", path)
    assert {k: v["value"] for k, v in before.items()} == {k: v["value"] for k, v in after.items()}
    assert b"Bearer" not in done.stdout


def test_tables_get_what_the_budget_leaves(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("ebpf: {unwindTableAllocationBytes: 64Gi}\n")
    said = json.loads(agent("-c", path, "--print-config", "--json").stdout)["machine"]
    plan = rig.flyball("plan", "--json", "--depth", 64, "--table-memory", said["table_bytes"])
    assert said["fits"] and plan.returncode == 0
    plan = rig.flyball("plan", "--depth", 64, "--table-memory", said["table_bytes"] + (2 << 20))
    assert plan.returncode != 0
    path.write_text("ringBufferSizeKb: 65536\n")
    said = json.loads(agent("-c", path, "--print-config", "--json").stdout)["machine"]
    assert not said["fits"] and "budget" in said["why"]


def test_docs_are_of_today():
    done = agent("--config-markdown")
    assert done.stdout == (rig.ROOT / "docs" / "configuration.md").read_bytes()
    explained = {d for d in re.findall(r"\b(?:MEM|CPU|CTX|RING)-\d\b", done.stdout.decode())}
    assert explained and all(rig.flyball("explain", d).returncode == 0 for d in explained)


def test_stdin_and_refusals(tmp_path):
    (tmp_path / "a").write_text("window: 5s\n")
    with open(tmp_path / "a", "rb") as text:
        done = agent("-c", "-", "--check-config", stdin=text)
    assert done.returncode == 0 and done.stdout == b"-: right\n"
    done = agent("-c", tmp_path / "none", "--check-config")
    assert done.returncode == 4 and b"cannot open" in done.stderr and len(done.stderr.splitlines()) == 1
    done = agent("-c", tmp_path, "--check-config")
    assert done.returncode == 4 and b"cannot read" in done.stderr
    for args in (["--check-config", "--print-config"], ["--json"], ["node.yaml"], ["--nothing"]):
        done = agent(*args)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, args
