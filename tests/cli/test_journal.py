"""`roost journal`."""

import json

import msgspec
from played_host import NOW
from protocol_samples import JOURNAL_ENTRY

from remote.protocol.journal import ReadJournal


def test_a_change_is_a_line_with_who_what_and_what_came_of_it(played_host, roost) -> None:
    told = roost("journal")
    assert told.exit_code == 0, told.stderr
    for words in (
        "2026-07-18T",
        "mcp:planner (192.0.2.7)",
        "reclaim runs/old",
        "refused (conflict): what lies there changed",
    ):
        assert words in told.stdout


def test_pages_are_joined_and_what_is_left_out_is_said(played_host, roost) -> None:
    played_host.journal = [msgspec.structs.replace(JOURNAL_ENTRY, subject=f"run-{number}") for number in range(7)]
    document = json.loads(roost("journal", "--limit", "5", "--json").stdout)["journal"]
    assert [entry["subject"] for entry in document["entries"]] == [f"run-{number}" for number in range(5)]
    assert document["omitted"] == 2
    assert "2 older ones are left out" in roost("journal", "--limit", "5").stderr


def test_since_is_by_the_hosts_clock(played_host, roost) -> None:
    assert roost("journal", "--since", "1h").exit_code == 0
    assert [request.since for request in played_host.asked if isinstance(request, ReadJournal)] == [NOW - 3600]
    assert roost("journal", "--since", "soon").exit_code == 2
