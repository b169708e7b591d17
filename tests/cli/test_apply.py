"""`roost apply`, and plans without a run."""

import json

import pytest
from protocol_samples import RUN

from remote.protocol.requests import StartJob
from remote.protocol.specs import RunSpec


def test_a_plan_is_applied_once_whoever_asks_again(played_host, roost) -> None:
    for _ in range(2):
        told = roost("apply", "--plan", "c" * 64, "--json")
        assert told.exit_code == 0, told.stderr
    first, again = [request for request in played_host.asked if isinstance(request, StartJob)]
    assert first == again
    assert first.spec == RunSpec(run=RUN, plan="c" * 64)
    assert json.loads(told.stdout)["run"]["job"]["job_id"] == "run-embedded-plan-" + "c" * 16


def test_a_dry_run_is_the_plan_and_starts_nothing(played_host, roost) -> None:
    told = roost("run", "embedded", "--dry-run")
    assert told.exit_code == 0
    assert "risk: the disk is nearly full afterwards" in told.stdout
    assert "fingerprint " + "c" * 64 in told.stdout
    assert json.loads(roost("run", "embedded", "--dry-run", "--json").stdout)["plan"]["facts"] == {
        "data.train": "ab" * 8
    }
    assert not [request for request in played_host.asked if isinstance(request, StartJob)]


def test_a_plan_says_what_the_time_costs_where_the_host_has_a_price(played_host, roost, monkeypatch, tmp_path) -> None:
    assert json.loads(roost("plan", "embedded", "--json").stdout)["plan"]["cost"] is None
    configured = tmp_path / "config" / "roost" / "roost.toml"
    configured.parent.mkdir(parents=True)
    configured.write_text('[hosts.lab]\naddress = "lab.example"\nprice_per_hour = 18.0\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    plan = json.loads(roost("plan", "embedded", "-H", "lab", "--json").stdout)["plan"]
    assert plan["seconds"] > 0
    assert plan["cost"] == {
        "amount": pytest.approx(plan["seconds"] / 200),
        "currency": "USD",
        "price_per_hour": 18.0,
        "seconds": plan["seconds"],
    }
