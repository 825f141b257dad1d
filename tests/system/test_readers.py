# SPDX-License-Identifier: Apache-2.0
"""Readers that are not ours: google's pprof, the official OTLP bindings, a Collector, a browser."""

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import urllib.request

import pytest
import rig

PPROF_VERSION = "v0.0.0-20261105003125-4bf881d7fb0b"
ALL = ("folded", "pb.gz", "otlp", "json", "html")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, workloads, cases):
    """One recording of a lively machine, in all forms."""
    directory = tmp_path_factory.mktemp("recorded")
    targets = rig.Targets()
    targets.start(workloads / "split", "-t", 600)
    targets.start(cases / "churn", 600, cases / "briefs")
    targets.start(cases / "comms")
    try:
        with rig.recording(directory, "-a", "-F", 199, outputs=ALL) as recorder:
            rig.run_for(3)
    finally:
        targets.end_all()
    return recorder


def need_go():
    if not shutil.which("go"):
        pytest.skip("no Go toolchain")


# ------------------------------------------------------------------------------------ pprof


@pytest.fixture(scope="module")
def pprof():
    need_go()
    where = rig.CACHE / f"pprof-{PPROF_VERSION}"
    if not (where / "pprof").exists():
        subprocess.run(["go", "install", f"github.com/google/pprof@{PPROF_VERSION}"], check=True,
                       env={**os.environ, "GOBIN": str(where), "GOFLAGS": "-mod=mod"})
    return where / "pprof"


def pprof_text(pprof, *args):
    done = subprocess.run([pprof, "-symbolize=none", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def total_of(text, unit):
    """The total that -raw prints sample by sample is summed; -top prints it rounded."""
    found = re.search(rf"of ([\d.]+){unit} total", text)
    assert found, text[:400]
    return float(found.group(1))


def raw_sums(text):
    """Sums of the values in `pprof -raw`."""
    body = text.split("Samples:\n", 1)[1].split("Locations", 1)[0].splitlines()[1:]
    rows = [m.group(1).split() for m in (re.match(r"\s*((?:-?\d+\s*)+):", line) for line in body) if m]
    return [sum(int(row[i]) for row in rows) for i in range(len(rows[0]))]


def test_google_pprof_reads_and_counts_alike(recorded, pprof):
    path = recorded.outputs["pb.gz"]
    sums = raw_sums(pprof_text(pprof, "-raw", path))
    assert sums == [recorded.kind["delivered"], recorded.kind["weight_ns"]]
    top = pprof_text(pprof, "-top", "-unit=ms", path)
    assert total_of(top, "ms") == pytest.approx(recorded.kind["weight_ns"] / 1e6, abs=0.1)
    assert "work_a" in top and "flyball.ledger" in pprof_text(pprof, "-comments", path)
    tags = pprof_text(pprof, "-tags", path)
    assert "split-two" in tags


def test_google_pprof_merges_two(recorded, pprof):
    path = recorded.outputs["pb.gz"]
    text = pprof_text(pprof, "-top", "-unit=ms", path, path)
    assert total_of(text, "ms") == pytest.approx(2 * recorded.kind["weight_ns"] / 1e6, abs=0.1)


# ------------------------------------------------------------------------------------ bindings


def test_official_bindings_decode(recorded, bindings):
    """Every index in range, every rule of the dictionary, the total."""
    data = recorded.outputs["otlp"].read_bytes()
    request = bindings.ExportProfilesServiceRequest.FromString(data)
    d = request.dictionary
    tables = (d.mapping_table, d.location_table, d.function_table, d.link_table, d.attribute_table, d.stack_table)
    for table in tables:
        assert len(table) > 0 and table[0].ByteSize() == 0, "element 0 is not the zero value"
    assert d.string_table[0] == ""
    assert len(set(d.string_table)) == len(d.string_table)
    total = 0
    for resource in request.resource_profiles:
        keys = [a.key for a in resource.resource.attributes]
        assert all(keys) and len(set(keys)) == len(keys)
        for scope in resource.scope_profiles:
            assert scope.scope.name
            for profile in scope.profiles:
                assert profile.samples and profile.HasField("period_type")
                total += check_profile(profile, d)
    assert total == recorded.kind["weight_ns"]
    # No field the bindings do not know, and the same bytes when they write it again.
    again = bindings.ExportProfilesServiceRequest.FromString(request.SerializeToString())
    assert again == request


def check_profile(profile, d):
    start, end = profile.time_unix_nano, profile.time_unix_nano + profile.duration_nano
    total = 0
    for sample in profile.samples:
        assert 0 <= sample.stack_index < len(d.stack_table) and sample.link_index == 0
        assert all(0 < i < len(d.attribute_table) for i in sample.attribute_indices)
        times = sample.timestamps_unix_nano
        assert times and all(start <= t < end for t in times)
        assert not sample.values or len(sample.values) == len(times)
        total += (sum(sample.values) or len(times)) * profile.period
        for location in d.stack_table[sample.stack_index].location_indices:
            check_location(d.location_table[location], d)
    return total


def check_location(location, d):
    mapping = d.mapping_table[location.mapping_index]
    if location.mapping_index:
        keys = {d.string_table[d.attribute_table[i].key_strindex] for i in mapping.attribute_indices}
        if mapping.memory_limit:
            assert mapping.memory_start <= location.address <= mapping.memory_limit
        name = d.string_table[mapping.filename_strindex]
        if name.startswith("/"):
            assert any(key.startswith("process.executable.build_id.") for key in keys), (name, keys)
    for line in location.lines:
        assert d.string_table[d.function_table[line.function_index].name_strindex]


def test_official_bindings_read_the_json(recorded, bindings):
    """proto3 JSON, but ids in hex: our files hold none that differ."""
    from google.protobuf import json_format
    text = recorded.outputs["json"].read_text()
    request = json_format.Parse(text, bindings.ExportProfilesServiceRequest())
    same = bindings.ExportProfilesServiceRequest.FromString(recorded.outputs["otlp"].read_bytes())
    for message in (request, same):
        for resource in message.resource_profiles:
            for scope in resource.scope_profiles:
                for profile in scope.profiles:
                    profile.profile_id = b""
    assert request == same


# ------------------------------------------------------------------------------------ Collector


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Collector:
    """A real OpenTelemetry Collector: otlp and otlpjsonfile in, debug and file out."""

    def __init__(self, binary, directory):
        self.port = free_port()
        self.drop = directory / "drop"
        self.drop.mkdir()
        self.out = directory / "received.json"
        self.log = directory / "collector.log"
        config = directory / "config.yaml"
        config.write_text(f"""
receivers:
  otlp:
    protocols:
      http: {{ endpoint: "127.0.0.1:{self.port}", max_request_body_size: 67108864 }}
  otlp_json_file: {{ include: ["{self.drop}/*.json"], start_at: beginning, poll_interval: 100ms, max_log_size: 64MiB }}
exporters:
  debug: {{ verbosity: normal }}
  file: {{ path: "{self.out}", flush_interval: 100ms }}
service:
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines:
    profiles: {{ receivers: [otlp, otlp_json_file], exporters: [debug, file] }}
""")
        self.process = subprocess.Popen(
            [binary, "--feature-gates=+service.profilesSupport", f"--config=file:{config}"],
            stdout=subprocess.DEVNULL, stderr=open(self.log, "wb"))

    def wait_ready(self):
        def ready():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        rig.wait_for(ready, "the collector listens")

    def received(self):
        """Requests it wrote down, whole lines only."""
        if not self.out.exists():
            return []
        text = self.out.read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines() if line]

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=rig.PATIENCE)


@pytest.fixture
def collector(tmp_path):
    need_go()
    done = subprocess.run([rig.TESTS / "system" / "build-collector"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    c = Collector(done.stdout.strip(), tmp_path)
    try:
        c.wait_ready()
        yield c
    finally:
        c.stop()


def samples_in(requests):
    return sum(len(s.get("timestampsUnixNano", [])) for r in requests for rp in r["resourceProfiles"]
               for sp in rp["scopeProfiles"] for p in sp["profiles"] for s in p["samples"])


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_collector_takes_our_bytes(encoding, recorded, collector):
    data = recorded.outputs["otlp"].read_bytes()
    request = urllib.request.Request(
        f"http://127.0.0.1:{collector.port}/v1development/profiles", method="POST",
        data=gzip.compress(data) if encoding == "gzip" else data,
        headers={"Content-Type": "application/x-protobuf", "Content-Encoding": encoding}
        if encoding == "gzip" else {"Content-Type": "application/x-protobuf"})
    with urllib.request.urlopen(request, timeout=rig.PATIENCE) as answer:
        assert answer.status == 200
        assert answer.read() in (b"", b"\n\x00"), "a partial success"
    got = rig.wait_for(collector.received, "the collector wrote what it got")
    assert samples_in(got) == recorded.kind["delivered"]
    assert "work_a" in got[0]["dictionary"]["stringTable"]
    assert '"split-two"' in json.dumps(got[0])


def test_collector_reads_our_json(recorded, collector):
    shutil.copy(recorded.outputs["json"], collector.drop / "one.json")
    got = rig.wait_for(collector.received, f"the collector read the file: {collector.log.read_text()[-500:]}")
    assert samples_in(got) == recorded.kind["delivered"]
    assert "work_a" in got[0]["dictionary"]["stringTable"]


# ------------------------------------------------------------------------------------ browser


def test_browser_shows_the_page(recorded, tmp_path):
    """Chromium, driven: zoom, search, roots. The picture lies beside the recording."""
    picture = tmp_path / "page.png"
    done = subprocess.run(["node", rig.TESTS / "ui" / "run.mjs"], capture_output=True, text=True, check=False, timeout=300,
                          stdin=subprocess.DEVNULL,
                          env={**os.environ, "FLYBALL_HTML": str(recorded.outputs["html"]),
                               "FLYBALL_SCREENSHOT": str(picture)})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert picture.read_bytes().startswith(b"\x89PNG")
