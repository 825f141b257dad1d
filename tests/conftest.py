# SPDX-License-Identifier: Apache-2.0
"""For every pytest folder: long tests on request, and no skip that tests/allowed-skips does not list."""

import fnmatch
import os
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", default=bool(os.environ.get("FLYBALL_LONG")),
                     help="run the tests that take minutes too, and repeat others more often")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    config.hook.pytest_deselected(items=[i for i in items if i.get_closest_marker("long")])
    items[:] = [i for i in items if not i.get_closest_marker("long")]


def allowed_patterns():
    for line in (HERE / "allowed-skips").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.split(None, 1)[0]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    name = f"{Path(item.fspath).parent.name}::{Path(item.fspath).stem}::{item.name}"
    if any(fnmatch.fnmatchcase(name, p) for p in allowed_patterns()):
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{name} was skipped, and tests/allowed-skips does not allow it: {why}"
