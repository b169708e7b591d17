"""What people read: every variant has words, and nothing hostile gets through."""

import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from protocol_samples import RUN_PLAN, SAMPLES

from console.cli.extraction_text import extraction_plan_lines
from console.cli.server_text import server_lines
from console.cli.text import job_lines, job_table, progress_line, state_words, summary_lines
from console.cli.vocabulary_text import mapping_lines
from remote.protocol.jobs import Job, JobState, Lost, Running
from remote.protocol.progress import ExtractionPlanned, Progress, ProgressRecord, SampleQuarantined
from remote.protocol.reports import Finding, MappingReport


def samples_of(union: object) -> list[object]:
    kinds = get_args(union)
    found = [sample for sample in SAMPLES if isinstance(sample, kinds)]
    assert {type(sample) for sample in found} == set(kinds)
    return found


@pytest.mark.parametrize("state", samples_of(JobState), ids=lambda state: type(state).__name__)
def test_every_state_has_words(state: JobState) -> None:
    assert state_words(state).strip()


@pytest.mark.parametrize("event", samples_of(Progress), ids=lambda event: type(event).__name__)
def test_every_event_has_words(event: Progress) -> None:
    line = progress_line(ProgressRecord(seq=1, at=0.0, event=event))
    assert line.startswith("00:00:00 ")
    assert len(line) > len("00:00:00 ") + 3


def test_jobs_line_up_under_their_heading() -> None:
    jobs = [sample for sample in SAMPLES if isinstance(sample, Job)]
    lines = job_table(jobs)
    assert len(lines) == len(jobs) + 1
    column = lines[0].index("STATE")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines[1:])


def test_devices_are_shown_while_a_job_has_them() -> None:
    (sample,) = [sample for sample in SAMPLES if isinstance(sample, Job)]
    running = msgspec.structs.replace(sample, state=Running(since=0.0, pid=1), gpus=[0, 1, 2, 3, 6])
    over = msgspec.structs.replace(running, state=Lost(since=0.0, reason="gone"))
    heading, first, second = job_table([running, over])
    assert heading.split()[-2:] == ["GPUS", "STATE"]
    assert "  0-3, 6  running" in first
    assert "0-3" not in second
    assert "GPUS" not in job_table([over])[0]
    assert "gpus      0-3, 6" in job_lines(running)
    assert "gpus      0-3, 6  (given back)" in job_lines(over)


def test_a_finding_shows_its_fix() -> None:
    finding = Finding(code="absolute-ids", severity="error", message="m", fix="subtract arange")
    report = MappingReport(
        path="/m",
        valid=False,
        findings=[finding],
        files=[],
        draft_vocab_size=None,
        target_vocab_size=None,
        coverage=None,
        provenance="foreign",
    )
    text = "\n".join(mapping_lines(report))
    assert "NOT VALID" in text
    assert "[absolute-ids]" in text
    assert "subtract arange" in text


def test_a_servers_command_can_be_pasted_into_the_hosts_shell():
    stage = msgspec.structs.replace(
        RUN_PLAN.stages[0],
        stage="serving",
        command=["/opt/my python", "-m", "sglang.launch_server", "--ids", "1", "14", "--fast"],
        environment={"A": "1 2"},
    )
    text = "\n".join(server_lines(msgspec.structs.replace(RUN_PLAN, stages=[stage], problems=["no disk"])))
    assert text == (
        "# serves with the drafter\nenv \\\n  'A=1 2' \\\n  '/opt/my python' \\\n  -m sglang.launch_server \\\n"
        "  --ids 1 14 \\\n  --fast\n\nproblem: no disk"
    )


@pytest.mark.parametrize(
    ("bytes_free", "inodes_free", "fits"),
    [(100, None, True), (100, 7, True), (99, 7, False), (100, 6, False), (100, 0, False)],
)
def test_a_plan_that_does_not_fit_says_what_to_do(bytes_free, inodes_free, fits) -> None:
    plan = ExtractionPlanned(
        samples=3,
        tokens=30,
        loss_tokens=10,
        shards=1,
        bytes_total=200,
        bytes_needed=100,
        inodes_needed=7,
        bytes_free=bytes_free,
        inodes_free=inodes_free,
        unfit=0,
        sample_id="s",
        sample_text="hello",
    )
    assert any("it does not fit: free space there" in line for line in extraction_plan_lines(plan)) is not fits


def test_a_plan_names_what_cannot_be_used_and_says_how_many_are_cut() -> None:
    plan = ExtractionPlanned(
        samples=3,
        tokens=30,
        loss_tokens=10,
        shards=1,
        bytes_total=200,
        bytes_needed=100,
        inodes_needed=7,
        bytes_free=100,
        inodes_free=7,
        unfit=2,
        unfit_samples=[SampleQuarantined(sample_id="mute\x1b", reason="no answer")],
        cut=1,
        sample_id="s",
        sample_text="hello",
    )
    assert extraction_plan_lines(plan)[:4] == [
        "samples  3, 1 of them cut",
        "unfit    2, to be quarantined",
        "  mute: no answer",
        "  …",
    ]


def test_figures_of_a_job_are_shown_in_their_units() -> None:
    summary = {
        "bytes": 166_012_404,
        "tokens": 35956,
        "seconds": 148.04,
        "loss": 5.501792144775391,
        "winner": None,
        "whole": True,
    }
    assert summary_lines(summary) == [
        "bytes = 158 MiB",
        "tokens = 35,956",
        "seconds = 2:28",
        "loss = 5.502",
        "winner = –",
        "whole = yes",
    ]
