# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the system tests: built programs, targets that end with the test, the official bindings."""

import hashlib
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rig


def pytest_sessionstart(session):
    if session.config.getoption("--collect-only"):
        return
    if os.geteuid() != 0:
        pytest.exit("tests/system needs root, since flyball loads BPF programs and opens perf events: "
                    "run scripts/check as root", returncode=3)
    if not os.access(rig.FLYBALL, os.X_OK):
        pytest.exit(f"{rig.FLYBALL} is not there: build flyball first, or name it by FLYBALL", returncode=4)
    rig.LONG = rig.LONG or session.config.getoption("--long")


def built(folder, *args):
    """The programs of tests/FOLDER, built again only when a source changed."""
    source = rig.TESTS / folder
    out = rig.FLYBALL.parent / "system-tests" / folder
    digest = hashlib.sha256(repr(args).encode())
    for path in sorted(p for p in source.iterdir() if p.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    stamp = out / ".built"
    if not stamp.exists() or stamp.read_text() != digest.hexdigest():
        done = subprocess.run([source / "build", out, *args], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.exit(f"tests/{folder}/build failed: {done.stderr.strip()[-800:]}", returncode=4)
        stamp.write_text(digest.hexdigest())
    return out


@pytest.fixture(scope="session")
def workloads():
    return built("workloads")


@pytest.fixture(scope="session")
def cases():
    return built("cases")


@pytest.fixture(scope="session")
def corpus():
    return built("unwind", *(["all"] if rig.LONG else []))


@pytest.fixture
def targets():
    kept = rig.Targets()
    yield kept
    kept.end_all()


@pytest.fixture(scope="session")
def bindings():
    """The official Python bindings of OTLP, from the environment or fetched once into the build."""
    name = "opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2"
    try:
        return importlib.import_module(name)
    except ImportError:
        pass
    where = rig.FLYBALL.parent / "system-tests" / "python"
    if not (where / "opentelemetry").is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", where, "-r",
                        Path(__file__).parent / "requirements.txt"], check=True)
    sys.path.insert(0, str(where))
    importlib.invalidate_caches()
    return importlib.import_module(name)
