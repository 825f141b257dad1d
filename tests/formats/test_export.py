# SPDX-License-Identifier: Apache-2.0
"""flyball export against receivers that do what the specification foresees, and what it does not."""

import json
import os
import subprocess
import time
from collections import Counter
from email.utils import formatdate

import grpc
import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest

import otlp_rules
from receivers import (Huge, aborts, certificates, collector, cut_answer, cut_request, field, free_port,  # noqa: F401
                       garbage, grpc_receiver, hang, http, retry_info, says, slowly, wait_for)
from test_formats import BUILD, made  # noqa: F401

PARTIAL = field(1, b"\x08\x03" + field(2, b"too old"))


def export(*args, env=None, check=False):
    """(exit status, result); in 64 MiB of memory."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_") and "_proxy" not in k.lower()}
    done = subprocess.run(["prlimit", f"--data={64 << 20}", BUILD / "flyball", "export", "--json", *map(str, args)],
                          capture_output=True, text=True, env={**clean, **(env or {})}, check=False)
    result = json.loads(done.stdout) if done.stdout else {}
    result["err"] = done.stderr
    if check:
        assert done.returncode == 0, result
        assert all(f["outcome"] == "delivered" for f in result["files"]), result
    return done.returncode, result


@pytest.fixture
def small(made):  # noqa: F811
    return made[0] / "hostile.otlp"


def totals(requests):
    """Samples by process and innermost name; ledgers."""
    counted, ledgers = Counter(), 0
    for request in requests:
        d = request.dictionary
        for resource in request.resource_profiles:
            pid = next((a.value.int_value for a in resource.resource.attributes if a.key == "process.pid"), 0)
            for scope in resource.scope_profiles:
                for profile in scope.profiles:
                    ledgers += bool(profile.attribute_indices)
                    for s in profile.samples:
                        stack = d.stack_table[s.stack_index].location_indices
                        lines = d.location_table[stack[0]].lines if stack else []
                        name = d.string_table[d.function_table[lines[0].function_index].name_strindex] if lines else ""
                        counted[pid, name] += len(s.timestamps_unix_nano)
    return counted, ledgers


def parsed(bodies):
    return [ExportProfilesServiceRequest.FromString(body) for body in bodies]


# ------------------------------------------------------------------------------------ the Collector


@pytest.mark.parametrize("security", ["plain", "tls", "mutual"])
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_collector_takes_all(made, collector, certificates, kind, compression, security):  # noqa: F811
    directory, facts = made
    args = ["--kind", kind, "--compression", compression, "--to", collector.url(security, kind)]
    if security != "plain":
        args += ["--ca", certificates.path("ca.pem")]
    if security == "mutual":
        args += ["--cert", certificates.path("client.pem"), "--key", certificates.path("client.key")]
    before = collector.size()
    names = [n for n in facts if n not in ("empty", "large")]
    export(*args, *(directory / f"{n}.otlp" for n in names), check=True)
    got = wait_for(lambda: collector.requests(before, len(names)), "the collector wrote what it got")
    for name, request in zip(names, got):
        samples = sum(len(s["timestampsUnixNano"]) for rp in request["resourceProfiles"]
                      for sp in rp["scopeProfiles"] for p in sp["profiles"] for s in p["samples"])
        assert samples == facts[name]["samples"], name
    status, result = export("--check", *args)
    assert status == 0, result


def test_collector_wants_a_client_certificate(small, collector, certificates):  # noqa: F811
    status, result = export("--kind", "grpc", "--deadline", "2", "--to", collector.url("mutual", "grpc"),
                            "--ca", certificates.path("ca.pem"), small)
    assert status == 4 and "--cert" in result["files"][0]["why"], result


def test_collector_counts_each_function_alike_after_splitting(made, collector):  # noqa: F811
    before = collector.size()
    _, result = export("--to", collector.url("plain", "http"), "--max-size", "256KiB", made[0] / "large.otlp", check=True)
    assert result["requests"] > 3
    got = wait_for(lambda: collector.requests(before, result["requests"]), "all requests were written")
    samples = sum(len(s["timestampsUnixNano"]) for r in got for rp in r["resourceProfiles"]
                  for sp in rp["scopeProfiles"] for p in sp["profiles"] for s in p["samples"])
    assert samples == made[1]["large"]["samples"]


# ------------------------------------------------------------------------------------ splitting


@pytest.mark.parametrize("name, size", [("hostile", "1KiB"), ("hostile", "4KiB"), ("inlined", "1KiB"), ("split", "1KiB"),
                                        ("large", "256KiB")])
def test_parts_are_requests_of_their_own(made, http, name, size):  # noqa: F811
    receiver = http()
    path = made[0] / f"{name}.otlp"
    export("--to", receiver.url, "--max-size", size, path, check=True)
    requests = parsed(receiver.received)
    assert len(requests) > 1
    for request in requests:
        assert otlp_rules.faults(request) == []
    assert totals(requests) == totals(parsed([path.read_bytes()]))


def test_no_names_keeps_what_nobody_could_find(made, http):  # noqa: F811
    receiver = http()
    export("--to", receiver.url, "--no-names", made[0] / "hostile.otlp", check=True)
    request, = parsed(receiver.received)
    assert otlp_rules.faults(request) == []
    assert all(not loc.lines for loc in request.dictionary.location_table if loc.mapping_index)
    assert "[truncated: depth 127]" in request.dictionary.string_table


# ------------------------------------------------------------------------------------ faults, HTTP


def test_refused_connection_is_tried_again(small, http):  # noqa: F811
    status, result = export("--to", f"http://127.0.0.1:{free_port()}", "--kind", "http", "--deadline", "1.5", small)
    assert status == 4 and result["files"][0]["outcome"] == "not delivered"
    assert result["attempts"] >= 2 and "nothing takes the connection" in result["files"][0]["why"]


@pytest.mark.parametrize("fault", [cut_answer, cut_request, garbage, says(502), says(504),
                                   says(200, b"<html>Log in", "text/html"),
                                   says(200, b"\xff\xff\xff")])
def test_fault_is_survived(small, http, fault):  # noqa: F811
    receiver = http(fault)
    _, result = export("--to", receiver.url, small, check=True)
    assert result["retries"] == 1 and result["attempts"] == 2
    assert receiver.received == [small.read_bytes()]
    assert "trying again in" in result["err"]


def test_hanging_receiver_costs_a_timeout(small, http):  # noqa: F811
    receiver = http(hang)
    began = time.monotonic()
    status, result = export("--to", receiver.url, "--timeout", "300ms", "--deadline", "1s", small)
    assert status == 4 and "no answer in time" in result["files"][0]["why"], result
    assert 0.9 < time.monotonic() - began < 20


def test_gibibyte_of_answer_is_not_read(small, http):  # noqa: F811
    huge = Huge()
    receiver = http(huge)
    _, result = export("--to", receiver.url, small, check=True)
    assert "longer than 65536 bytes" in result["err"]
    assert huge.sent < 64 << 20
    assert receiver.received == [small.read_bytes()]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_kept(small, http, status, form):  # noqa: F811
    # A date has whole seconds: 3 from now is more than 2.
    when = "2" if form == "seconds" else formatdate(time.time() + 3, usegmt=True)
    receiver = http(says(status, headers=[f"Retry-After: {when}"]))
    export("--to", receiver.url, small, check=True)
    waited = receiver.times[1] - receiver.times[0]
    assert waited >= (2 if form == "seconds" else 1), "sooner than the receiver asked for"
    assert receiver.received == [small.read_bytes()]


def test_partial_success_is_counted_and_not_sent_again(small, http):  # noqa: F811
    receiver = http(says(200, PARTIAL, takes=True))
    status, result = export("--to", receiver.url, small)
    assert status == 1 and result["rejected_profiles"] == 3 and result["attempts"] == 1
    assert result["files"][0] == {"file": str(small), "outcome": "delivered",
                                  "why": "it rejected 3 profiles: too old"}


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 500])
def test_what_will_not_change_is_refused_once(small, made, http, code):  # noqa: F811
    receiver = http(says(code, b"because", "text/plain"))
    status, result = export("--to", receiver.url, small, made[0] / "split.otlp")
    assert status == 1 and result["attempts"] == 2
    assert [f["outcome"] for f in result["files"]] == ["refused", "delivered"]
    assert f"HTTP status {code}: because" in result["files"][0]["why"]


def test_slow_receiver_gets_all(made, http):  # noqa: F811
    receiver = http(slowly)
    path = made[0] / "large.otlp"
    export("--to", receiver.url, "--compression", "none", "--timeout", "60s", path, check=True)
    assert receiver.received == [path.read_bytes()]


def test_many_faults_each_file_arrives_once(made, http):  # noqa: F811
    """Every file arrives, in order, and only what was taken without our knowing it arrives twice."""
    paths = [made[0] / f"{n}.otlp" for n in ("split", "hostile", "kernel", "jit")]
    receiver = http(cut_request, says(503), says(200, b"", takes=True), garbage, cut_answer)
    export("--to", receiver.url, *paths, check=True)
    assert receiver.received == [p.read_bytes() for p in paths]


# ------------------------------------------------------------------------------------ faults, gRPC


def test_grpc_resource_exhausted_with_retry_info(small, grpc_receiver):  # noqa: F811
    receiver = grpc_receiver(aborts(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", retry_info(1, 500000000)))
    export("--kind", "grpc", "--to", receiver.url, small, check=True)
    assert receiver.times[1] - receiver.times[0] >= 1.5
    assert receiver.received == [small.read_bytes()]


def test_grpc_resource_exhausted_without_is_refused(small, grpc_receiver):  # noqa: F811
    receiver = grpc_receiver(aborts(grpc.StatusCode.RESOURCE_EXHAUSTED, "full"))
    status, result = export("--kind", "grpc", "--to", receiver.url, small)
    assert status == 1 and result["attempts"] == 1 and "RESOURCE_EXHAUSTED: full" in result["files"][0]["why"]


def test_grpc_message_past_the_receivers_limit(made, grpc_receiver):  # noqa: F811
    receiver = grpc_receiver(options=[("grpc.max_receive_message_length", 100000)])
    args = ("--kind", "grpc", "--compression", "none", "--to", receiver.url, made[0] / "large.otlp")
    status, result = export(*args)
    assert status == 1 and "--max-size" in result["files"][0]["why"], result
    export(*args, "--max-size", "96KiB", check=True)
    assert totals(parsed(receiver.received)) == totals(parsed([(made[0] / "large.otlp").read_bytes()]))


@pytest.mark.parametrize("code, again", [("UNAVAILABLE", True), ("ABORTED", True), ("DEADLINE_EXCEEDED", True),
                                         ("INVALID_ARGUMENT", False), ("INTERNAL", False)])
def test_grpc_codes(small, grpc_receiver, code, again):  # noqa: F811
    receiver = grpc_receiver(aborts(grpc.StatusCode[code], "w\u00e4rum% nicht"))
    status, result = export("--kind", "grpc", "--to", receiver.url, small)
    assert (status, result["attempts"]) == ((0, 2) if again else (1, 1))
    assert f"{code}: w\u00e4rum% nicht" in (result["err"] if again else result["files"][0]["why"])


def test_grpc_partial_success_headers_and_compression(small, grpc_receiver):  # noqa: F811
    receiver = grpc_receiver(lambda context: PARTIAL)
    status, result = export("--kind", "grpc", "--to", receiver.url, "--header", "X-Scope-OrgID: me", small)
    assert status == 1 and result["rejected_profiles"] == 3
    assert receiver.metadata[0]["x-scope-orgid"] == "me" and "flyball/" in receiver.metadata[0]["user-agent"]
    assert result["wire_bytes"] < result["encoded_bytes"]


# ------------------------------------------------------------------------------------ TLS, names


@pytest.mark.parametrize("server, ca, said", [("expired", "ca", "certificate has expired"),
                                              ("server", "other", "not trusted"), ("server", None, "not trusted")])
def test_wrong_certificate(small, grpc_receiver, certificates, server, ca, said):  # noqa: F811
    receiver = grpc_receiver(credentials=certificates.grpc(server))
    trust = ["--ca", certificates.path(f"{ca}.pem")] if ca else []
    status, result = export("--kind", "grpc", "--to", receiver.url, *trust, "--deadline", "500ms", small)
    assert status == 4 and said in result["files"][0]["why"] and receiver.received == [], result


def test_grpc_over_mutual_tls_uses_one_connection(made, grpc_receiver, certificates):  # noqa: F811
    receiver = grpc_receiver(credentials=certificates.grpc("server", need_client=True))
    paths = [made[0] / f"{n}.otlp" for n in ("split", "hostile", "kernel")]
    export("--kind", "grpc", "--to", receiver.url, "--ca", certificates.path("ca.pem"), "--cert",
           certificates.path("client.pem"), "--key", certificates.path("client.key"), *paths, check=True)
    assert receiver.received == [p.read_bytes() for p in paths]


# ------------------------------------------------------------------------------------ --check


def checked(*args, **kwargs):
    status, result = export("--check", *args, **kwargs)
    return status, result["files"][0]["why"]


def test_check_says_what_stands_in_the_way(http, grpc_receiver, certificates):  # noqa: F811
    assert checked("--to", http().url) == (0, "")
    assert checked("--kind", "grpc", "--to", grpc_receiver().url) == (0, "")
    secure = grpc_receiver(credentials=certificates.grpc("server"))
    table = [
        (["--to", "http://no-such-name.invalid:4317"], "DNS: "),
        (["--to", f"http://127.0.0.1:{free_port()}"], "nothing takes the connection"),
        (["--to", http(says(404)).url], "HTTP status 404; it does not take profiles at this address"),
        (["--to", http(says(401)).url], "it wants credentials"),
        (["--to", http(says(308, headers=["Location: /x"])).url], "it points elsewhere"),
        (["--to", http().url, "--kind", "grpc"], "is this a port for gRPC?"),
        (["--to", grpc_receiver().url, "--kind", "http"], "is this a port for HTTP?"),
        (["--to", grpc_receiver(service="other.Service").url, "--kind", "grpc"], "UNIMPLEMENTED"),
        (["--to", grpc_receiver(aborts(grpc.StatusCode.UNAUTHENTICATED, "who?")).url, "--kind", "grpc"],
         "UNAUTHENTICATED: who?; it wants credentials"),
        (["--to", secure.url, "--kind", "grpc"], "TLS: its certificate is not trusted"),
        (["--to", secure.url.replace("https", "http"), "--kind", "grpc", "--timeout", "3s"], "connection broke"),
    ]
    for args, said in table:
        status, why = checked(*args)
        assert status == 1 and said in why, (args, why)


def test_check_in_words(http):  # noqa: F811
    receiver = http()
    began = time.monotonic()
    done = subprocess.run([BUILD / "flyball", "export", "--check", "--to", receiver.url], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0 and time.monotonic() - began < 10, "the answer was not the end"
    assert done.stdout == f"{receiver.url}/v1development/profiles takes profiles (http).\n"
    request, = parsed(receiver.received)
    assert otlp_rules.faults(request) == []


# ------------------------------------------------------------------------------------ environment, usage


def test_environment(small, http):  # noqa: F811
    receiver = http()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_PROFILES_HEADERS": "api-key=a%20b",
           "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    export(small, env=env, check=True)
    export(small, env={**env, "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT": receiver.url + "/exactly/here"}, check=True)
    paths = [path for path, _, _ in receiver.requests]
    assert paths == ["/v1development/profiles", "/exactly/here"]
    headers = receiver.requests[0][1]
    assert headers["api-key"] == "a b" and "content-encoding" not in headers


@pytest.mark.parametrize("args, said", [
    (["--to", "ftp://x"], "no http:// or https:// URL"),
    (["--to", "http://x/y", "--kind", "grpc"], "gRPC takes no path"),
    (["--to", "http://x", "--kind", "smoke"], "there are grpc, http, pyroscope, parca"),
    (["--to", "http://x", "--ca", "/no/such"], "cannot read /no/such"),
    (["--to", "http://x", "--header", "nothing"], "Name: value"),
    ([], "no URL of a receiver"),
])
def test_usage(small, args, said):
    status, result = export(*args, small)
    assert status == 2 and said in result["err"]


def test_files_that_are_none(tmp_path, http):  # noqa: F811
    receiver = http()
    (tmp_path / "bad.otlp").write_bytes(b"nothing of the kind")
    status, result = export("--to", receiver.url, tmp_path / "bad.otlp", tmp_path / "gone.otlp")
    assert status == 1 and receiver.requests == []
    assert "no OTLP export request" in result["files"][0]["why"]
    assert "No such file" in result["files"][1]["why"]


# ------------------------------------------------------------------------------------ Pyroscope, Parca


def test_pyroscope_gets_what_ingest_requires(made, http):  # noqa: F811
    receiver = http()
    path = made[0] / "split.pb.gz"
    export("--kind", "pyroscope", "--service", "my node", "--to", receiver.url, path, check=True)
    where, headers, body = receiver.requests[0]
    assert where.startswith("/ingest?") and "name=my%20node" in where and "format=pprof" in where
    assert "content-encoding" not in headers and body == path.read_bytes()


def test_parca_gets_what_write_raw_requires(made, grpc_receiver):  # noqa: F811
    receiver = grpc_receiver(service="parca.profilestore.v1alpha1.ProfileStoreService", method="WriteRaw")
    path = made[0] / "split.pb.gz"
    export("--kind", "parca", "--service", "my-node", "--to", receiver.url, path, check=True)
    labels = b"".join(field(1, field(1, k) + field(2, v)) for k, v in
                      ((b"__name__", b"process_cpu"), (b"service_name", b"my-node")))
    series = field(1, labels) + field(2, field(1, path.read_bytes()))
    assert receiver.received == [field(2, series)]
