"""Disks: told in time, in words that say what for, and not for a checkpoint's burst."""

import pytest

from tests.telemetry.diagnosis_samples import GIB, Watch, job, mount

EXTRACTION = {"agent": "extraction", "activity": "extract", "writes_to": "/data"}


def test_a_disk_that_is_full_before_the_job_is_done_is_told_in_these_words():
    tight = mount(free_bytes=90 * GIB, fill_rate_bytes_per_s=GIB / 6)
    writer = job(**EXTRACTION, bytes_left=1700 * GIB, seconds_left=2 * 3600 + 51 * 60)
    watch = Watch()
    assert watch.show_until_told("runway_short", 15, mounts=[tight], jobs=[writer]) >= 10
    told = watch.only("runway_short")
    assert told.summary == "/data is full in 9 min, extraction still needs 2 h 51 min"
    assert (told.severity, told.subject) == ("error", "/data")
    assert "90.0 GiB of 3.9 TiB free" in told.evidence
    assert "extraction has 1.7 TiB to write" in told.evidence


def test_what_does_not_fit_is_told_even_before_the_rate_is_known():
    writer = job(**EXTRACTION, bytes_left=100 * GIB)
    watch = Watch()
    watch.show(15, mounts=[mount(free_bytes=40 * GIB, fill_rate_bytes_per_s=None)], jobs=[writer])
    assert "lacks 60.0 GiB" in watch.only("runway_short").summary


def test_jobs_that_write_to_the_same_disk_add_up():
    writers = [job(f"extraction-{name}", **EXTRACTION, bytes_left=30 * GIB) for name in "ab"]
    watch = Watch()
    assert watch.show(30, mounts=[mount(free_bytes=40 * GIB)], jobs=writers[:1]) == []
    watch.show(15, mounts=[mount(free_bytes=40 * GIB)], jobs=writers)
    assert "lack 20.0 GiB" in watch.only("runway_short").summary


def test_a_run_counts_for_all_its_jobs():
    run = job("run-a", agent="run", run_id=None, activity="extraction", writes_to="/data", bytes_left=50 * GIB)
    writer = job("run-a-extraction", **EXTRACTION, run_id="run-a", bytes_left=30 * GIB)
    watch = Watch()
    assert watch.show(30, mounts=[mount(free_bytes=60 * GIB)], jobs=[run, writer]) == []
    watch.show(15, mounts=[mount(free_bytes=40 * GIB)], jobs=[run, writer])
    told = watch.only("runway_short")
    assert told.summary == "/data is too small: run lacks 10.0 GiB there"
    assert "run has 50.0 GiB to write" in told.evidence
    watch = Watch()
    watch.show(15, mounts=[mount(free_inodes=10)], jobs=[run, writer])
    assert "left, extraction writes there" in watch.only("inodes_short").summary


@pytest.mark.parametrize(
    "writer",
    [
        {"bytes_left": 30 * GIB, "seconds_left": 900.0},
        {"bytes_left": 0, "seconds_left": 0.0},
    ],
)
def test_a_disk_that_lasts_until_the_job_is_done_is_not_told(writer: dict):
    filling = mount(free_bytes=40 * GIB, fill_rate_bytes_per_s=40 * GIB / 1200)
    assert Watch().show(600, mounts=[filling], jobs=[job(**EXTRACTION, **writer)]) == []


@pytest.mark.parametrize(("runway_s", "severity"), [(3000, "warning"), (500, "error")])
def test_without_a_job_the_hour_and_the_ten_minutes_count(runway_s: float, severity: str):
    watch = Watch()
    watch.show_until_told("runway_short", 200, mounts=[mount(fill_rate_bytes_per_s=3000 * GIB / runway_s)])
    assert watch.only("runway_short").severity == severity


def test_a_disk_with_hours_left_is_not_told():
    assert Watch().show(600, mounts=[mount(fill_rate_bytes_per_s=3000 * GIB / 4000)]) == []


def test_a_minute_of_writing_is_no_leak():
    burst = lambda second: {"mounts": [mount(fill_rate_bytes_per_s=GIB * 1.5 if second % 600 < 90 else 0.0)]}  # noqa: E731
    training = job(writes_to="/data", seconds_left=9000.0)
    watch = Watch()
    for _ in range(40):
        assert watch.show(30, burst, jobs=[training]) == []


def test_a_full_disk_is_told_and_dropped_when_there_is_room_for_a_while():
    watch = Watch()
    watch.show(15, mounts=[mount(free_bytes=0)])
    assert watch.only("runway_short").summary == "/data is full"
    watch.show(30, mounts=[mount()])
    assert watch.only("runway_short").severity == "error"
    assert watch.show(40, mounts=[mount()]) == []


def test_few_inodes_are_told_where_a_job_writes():
    few = [mount(free_inodes=500_000)]
    watch = Watch()
    assert watch.show(60, mounts=few) == []
    assert watch.show(60, mounts=few, jobs=[job(writes_to="/other")]) == []
    watch.show(15, mounts=few, jobs=[job(writes_to="/data")])
    told = watch.only("inodes_short")
    assert told.severity == "warning"
    assert "500000 of 100000000 inodes free" in told.evidence


@pytest.mark.parametrize(
    ("free", "total", "told"),
    [(9000, None, True), (11_000, None, False), (9000, 500_000, True), (7900, 8000, False), (None, None, False)],
)
def test_how_few_is_few(free: int | None, total: int | None, told: bool):
    watch = Watch()
    watch.show(15, mounts=[mount(free_inodes=free, total_inodes=total)], jobs=[job(writes_to="/data")])
    assert bool(watch.told) is told
