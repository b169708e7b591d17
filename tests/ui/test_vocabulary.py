"""The mappings' page: what is known of one, and that nothing is measured or copied before a person saw what it means."""

from contextlib import asynccontextmanager

import msgspec
import pytest

from console.ui.screens.dialogs import Confirm
from remote.protocol.frames import JobChanged
from remote.protocol.jobs import Finished, Job
from remote.protocol.mappings import (
    CountedSource,
    CoverageReport,
    CurvePoint,
    MappingCoverageSpec,
    MissingToken,
    TokenSource,
)
from remote.protocol.reports import Finding, MappedFile, MappingInspection, MappingReport, MappingUse

ROOT = "/home/ann/.local/share/roost/embedded/root"
PLACE = f"{ROOT}/runs/embedded/mapping"
SIZES = [(60, 20), (80, 24), (120, 35), (200, 50)]

REPORT = MappingReport(
    path=PLACE,
    valid=True,
    findings=[],
    files=[MappedFile(name="d2t.npy", bytes=16_512, sha256="aa" * 32)],
    draft_vocab_size=2048,
    target_vocab_size=49152,
    coverage=0.945,
    provenance="roost",
)
INSPECTION = MappingInspection(
    report=REPORT,
    meta={"target_model": f"{ROOT}/models/tiny"},
    producer="roost vocabulary 2",
    created_at=1796000000.0,
    inputs={"store": "9154012982c8" + "0" * 52},
    lowest_id=2,
    highest_id=48_769,
    special_tokens=17,
    special_covered=1,
    used_by=[MappingUse(kind="drafter", path=f"{ROOT}/runs/embedded/drafter")],
    backups=[],
    counts=f"{ROOT}/runs/embedded/counts",
)
COVERAGE = CoverageReport(
    mapping=PLACE,
    target_model=f"{ROOT}/models/tiny",
    sources=[CountedSource(path=f"{ROOT}/runs/embedded/counts", kind="counts", weight=1.0, tokens=21270, sha256="c")],
    tokens=21270.0,
    distinct_tokens=3215,
    target_vocab_size=49152,
    draft_vocab_size=2048,
    coverage=0.945,
    best_coverage=0.96,
    proposals=3,
    acceptance_length_bound=3.4,
    best_acceptance_length_bound=3.5,
    curve=[CurvePoint(draft_vocab_size=1024, coverage=0.86), CurvePoint(draft_vocab_size=2048, coverage=0.96)],
    missing=[MissingToken(token_id=3850, count=12.0, share=0.0005, text=" concepts")],
    missing_tokens=1167,
)
MEASURED = Job(
    job_id="mapping-coverage-1",
    agent="mapping_coverage",
    state=Finished(started_at=1.0, ended_at=2.0, outcome="succeeded", exit_code=0, signal=None, reason=""),
    revision=1,
    created_at=9e9,
    created_by="ann",
    command=["x"],
    spec=MappingCoverageSpec(sources=[TokenSource(path="runs/embedded/counts")], mapping="runs/embedded/mapping"),
)


@asynccontextmanager
async def opened(show, records, *, size=(120, 35), inspection=INSPECTION):
    async with show(records, until=510.0, size=size) as screen:
        screen.session.mappings[PLACE] = inspection
        await screen.until_shown("✓ promote")
        await screen.pilot.press("5")
        yield screen


async def ask(screen, key: str, answer: str) -> None:
    await screen.pilot.press(key)
    await screen.until(lambda: screen.app.screen.query("#answer"))
    screen.app.screen.query_one("#answer").value = answer
    await screen.pilot.press("enter")


async def until_told(screen, words: str) -> None:
    await screen.until(lambda: any(words in notice.message for notice in screen.app._notifications))


@pytest.mark.parametrize("size", SIZES)
async def test_it_says_what_a_mapping_is_and_who_uses_it(embedded_run, show, size) -> None:
    async with opened(show, embedded_run, size=size) as screen:
        await screen.until_shown("runs/embedded/mapping", "✓ valid", "2,048 of the target's 49,152")
        await screen.pilot.press("end")
        await screen.until_shown("d2t.npy")
        if size[1] >= 35:
            await screen.until_shown("✓ none", "drafter", "runs/embedded/drafter", "m counts answers")


async def test_findings_have_code_severity_and_fix_and_forbid_a_copy(embedded_run, show) -> None:
    finding = Finding(code="absolute_ids", severity="error", message="d2t holds ids", fix="convert it")
    broken = msgspec.structs.replace(
        INSPECTION, report=msgspec.structs.replace(REPORT, valid=False, findings=[finding])
    )
    async with opened(show, embedded_run, inspection=broken) as screen:
        await screen.until_shown("✗ NOT VALID", "✗ error absolute_ids", "d2t holds ids", "convert it")
        await screen.pilot.press("y")
        await until_told(screen, "It must not be used (absolute_ids)")
        assert not screen.app.screen.query("#answer")


async def test_what_was_measured_shows_its_curve_and_what_is_missing(embedded_run, show) -> None:
    async with opened(show, embedded_run, size=(120, 50)) as screen:
        await screen.until_shown("not measured yet")
        screen.session.coverages[MEASURED.job_id] = COVERAGE
        await screen.send(JobChanged(job=MEASURED))
        await screen.until_shown("covers 94.5%", "the best of its size covers 96.0%", "◂ this size", "3.400 with 3")
        await screen.until_shown("1,167 tokens", '" concepts"')


async def test_measuring_shows_what_it_does_first(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        await screen.until_shown("✓ valid")
        await ask(screen, "m", "runs/embedded/store")
        await screen.until_shown("Measure coverage?", "every answer token of runs/embedded/store", "$ roost vocabulary")
        await screen.pilot.press("n")
        assert not screen.session.measured
        await ask(screen, "m", "runs/embedded/store")
        await screen.until_shown("Measure coverage?")
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.measured)
        assert screen.session.measured[0].mapping == PLACE
        assert screen.session.measured[0].sources == [TokenSource(path="runs/embedded/store")]


async def test_a_copy_shows_what_lies_there_first(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        await screen.until_shown("✓ valid")
        await ask(screen, "y", "runs/next/mapping")
        await screen.until_shown(
            "Copy a mapping?", "no mapping lies there", "1 files, 16.1 KiB", "$ roost vocabulary copy"
        )
        await screen.pilot.press("escape")
        await screen.until(lambda: not isinstance(screen.app.screen, Confirm))
        assert not screen.session.copied
        await ask(screen, "y", "runs/next/mapping")
        await screen.until_shown("Copy a mapping?")
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.copied)
        assert screen.session.copied == [(PLACE, "runs/next/mapping", "", False)]


async def test_another_mapping_is_put_aside_only_when_somebody_said_so(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        await screen.until_shown("✓ valid")
        other = msgspec.structs.replace(REPORT, files=[MappedFile(name="d2t.npy", bytes=1, sha256="bb")])
        screen.session.mappings["old"] = msgspec.structs.replace(INSPECTION, report=other)
        await ask(screen, "y", "lab:old")
        await screen.until_shown("ANOTHER mapping of 2,048 tokens", "old on lab", "--to lab --replace")
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.copied)
        assert screen.session.copied == [(PLACE, "old", "lab", True)]


async def test_the_same_mapping_there_is_nothing_to_do(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        await screen.until_shown("✓ valid")
        screen.session.mappings["twin"] = INSPECTION
        await ask(screen, "y", "twin")
        await until_told(screen, "There is nothing to do.")
        assert not screen.session.copied


async def test_a_mapping_that_no_job_knows_is_inspected_by_its_path(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        await screen.until_shown("✓ valid")
        screen.session.mappings["/elsewhere/vocab_mapping.pt"] = msgspec.structs.replace(
            INSPECTION, report=msgspec.structs.replace(REPORT, layout="specforge")
        )
        await ask(screen, "i", "/elsewhere/vocab_mapping.pt")
        await screen.until_shown("/elsewhere/vocab_mapping.pt", "mapping 1 of 2", "layout specforge")
        await screen.pilot.press("n")
        await screen.until_shown("mapping 2 of 2", "runs/embedded/mapping")
        await ask(screen, "i", "/nothing")
        await screen.until_shown("✗ the recording has no look at this mapping")
