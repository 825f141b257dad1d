# SPDX-License-Identifier: Apache-2.0
"""`flyball governor --simulate`: the examples, its JSON, and what it refuses."""

import json

import pytest
import rig

EXAMPLES = sorted((rig.ROOT / "examples").glob("*.governor"))


def simulate(path, *args, **options):
    return rig.flyball("governor", "--simulate", path, *args, **options)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_keeps_all_rules(path):
    done = simulate(path, "--json")
    assert done.returncode == 0, done.stdout
    run = json.loads(done.stdout)
    assert run["broken"] == [] and run["title"]
    ledger = run["ledger"]
    dropped = ledger["ring_full"] + ledger["suppressed"] + ledger["memory_pressure"]
    assert ledger["taken"] == ledger["delivered"] + dropped + ledger["in_ring"] > 0
    assert ledger["ticks"] == ledger["taken"] + ledger["idle"]
    assert abs(sum(run["state_s"].values()) - run["seconds"]) < 0.2
    assert abs(sum(run["tier_s"]) - run["seconds"]) < 0.2
    assert len(run["events"]) == run["events_total"] > 0
    assert all(e["reason"] for e in run["events"])
    assert [p["time_s"] for p in run["points"]] == sorted(p["time_s"] for p in run["points"])


def test_stalled_reader_goes_through_all_states():
    run = json.loads(simulate(rig.ROOT / "examples" / "stalled-reader.governor", "--json").stdout)
    states = ["normal"]
    for event in run["events"]:
        if event["state"] != states[-1]:
            states.append(event["state"])
    assert states == ["normal", "degraded", "suppressed", "degraded", "normal"]


def test_tiers_come_in_order_and_go_in_order():
    run = json.loads(simulate(rig.ROOT / "examples" / "tiers.governor", "--json").stdout)
    tiers = [0]
    for event in run["events"]:
        if event["tier"] != tiers[-1]:
            tiers.append(event["tier"])
    assert tiers == [0, 1, 2, 1, 0]


def test_same_scenario_same_run():
    first, second = (simulate(EXAMPLES[0]).stdout for _ in range(2))
    assert first == second
    assert "rules      all" in first.decode() and "node CPU" in first.decode()


def test_picture_in_the_docs_is_of_today():
    text = simulate(rig.ROOT / "examples" / "stalled-reader.governor").stdout.decode()
    docs = (rig.ROOT / "docs" / "governor.md").read_text()
    assert all(line.rstrip() in docs for line in text.splitlines())


def test_scenario_from_stdin(tmp_path):
    (tmp_path / "s").write_text("set budget=5%\nnode cpus=2\nend 5s\n")
    with open(tmp_path / "s", "rb") as text:
        done = simulate("-", "--json", stdin=text)
    assert done.returncode == 0 and json.loads(done.stdout)["seconds"] == 5


def test_refusals(tmp_path):
    bad = tmp_path / "bad"
    for text, status, says in ((b"node load=200%\n", 2, "line 1: load=200%"), (b"end\0", 2, "no text"),
                               (b"#" * 300000, 2, "bytes or more")):
        bad.write_bytes(text)
        done = simulate(bad)
        assert done.returncode == status and says in done.stderr.decode(), done.stderr
        assert done.stdout == b"" and len(done.stderr.splitlines()) == 1
    done = simulate(tmp_path / "none")
    assert done.returncode == 4 and b"cannot open" in done.stderr
    assert rig.flyball("governor").returncode == 2
