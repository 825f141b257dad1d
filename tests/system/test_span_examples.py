# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/trace-correlation.md: each has spans of known cost, and so they show in the profile."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import rig

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/spans"
WRITER = EXAMPLES.parents[1] / "tests/workloads/span-writer"
LIBRARY = rig.BUILD / "libcontext"
SHARES = {"/fast": 0.1, "/slow": 0.3, "/batch": 0.6}
LINK = [f"-L{LIBRARY}", "-lflyball-context"]
INCLUDE = f"-I{EXAMPLES.parents[1] / 'include'}"
RPATH = f"-Wl,-rpath,{LIBRARY}"


def build(language, out):
    if language == "rust" and not shutil.which("rustc"):
        pytest.skip("no rustc here")
    command = {
        "c": ["cc", "-O2", EXAMPLES / "service.c", INCLUDE, *LINK, RPATH, "-pthread"],
        "cpp": ["c++", "-O2", EXAMPLES / "pool.cpp", INCLUDE, *LINK, RPATH, "-pthread"],
        "rust": ["rustc", "-O", EXAMPLES / "service.rs", *LINK, "-C", f"link-arg={RPATH}"],
    }[language]
    subprocess.run([*command, "-o", out], check=True, timeout=rig.PATIENCE)
    return [out]


@pytest.mark.parametrize("language", ["c", "cpp", "rust", "python"])
def test_example_has_the_cost_it_says(language, tmp_path):
    if language == "python":
        command = [sys.executable, EXAMPLES / "service.py", LIBRARY / "libflyball-context.so"]
    else:
        command = build(language, tmp_path / "example")
    recorder = rig.record_command(tmp_path, command, "-F", 499, outputs=("otlp",))
    weights, spans, services = Counter(), set(), set()
    for profile in recorder.otlp:
        for sample in profile.samples:
            if not sample.span_id:
                continue
            services.add(profile.resource["service.name"])
            spans.add(sample.span_id)
            weights[sample.attributes.get("http.route")] += len(sample.times) * profile.period
    total = sum(weights.values())
    said = f"{weights} {len(spans)} spans\n{recorder.why()}"
    assert services == {f"example-{language}"} and len(spans) > 20, (services, said)
    assert weights.pop(None, 0) < 0.02 * total, said  # between entering and naming the route
    assert set(weights) == set(SHARES), said
    for route, share in SHARES.items():
        assert abs(weights[route] / total - share) < 0.06, said


@pytest.mark.skipif(not rig.LONG, reason="builds for two minutes")
def test_crates_of_others_are_read_as_they_are(tmp_path, workloads):
    """libdd-otel-thread-ctx and libdd-library-config: ids, the attributes' names, the service."""
    if not shutil.which("cargo"):
        pytest.skip("no cargo here")
    for name in ("Cargo.toml", "main.rs"):  # the lock file stays out of the tree
        shutil.copy(WRITER / name, tmp_path)
    subprocess.run(["cargo", "build", "--quiet", "--release", "--target-dir", workloads / "span-writer"],
                   cwd=tmp_path, check=True, timeout=600)
    recorder = rig.record_command(tmp_path, [workloads / "span-writer/release/writer"], "-F", 499, outputs=("otlp",))
    seen = set()
    for profile in recorder.otlp:
        for sample in profile.samples:
            assert "flyball.span_fault" not in sample.attributes, sample.attributes
            if not sample.span_id:
                continue
            number = int(sample.span_id[:2], 16)
            assert sample.trace_id == sample.span_id * 2 == f"{number:02x}" * 16
            assert sample.attributes["http.route"] == f"/{number}"
            assert sample.attributes["datadog.local_root_span_id"] == "07" * 8
            assert profile.resource["service.name"] == "writer-rust"
            seen.add(number)
    assert len(seen) >= 24 and seen <= set(range(1, 49)), recorder.why()
