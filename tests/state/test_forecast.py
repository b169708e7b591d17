"""How long a disk lasts: no more is told than can be known and than somebody needs."""

import pytest

from console.state.forecast import runway_words
from remote.protocol.telemetry import JobSample, MountSample

WRITER = JobSample(
    job_id="j",
    agent="extraction",
    run_id=None,
    process_count=1,
    cpu_utilization=None,
    memory_bytes=0,
    writes_to="/data",
    bytes_left=1 << 30,
)


def mount(seconds: float) -> MountSample:
    return MountSample(
        path="/data",
        used_bytes=0,
        total_bytes=1 << 40,
        free_bytes=round(seconds * 1e6),
        free_inodes=None,
        fill_rate_bytes_per_s=1e6,
    )


@pytest.mark.parametrize(
    ("seconds", "idle", "written"),
    [
        (600, "full in 10:00", "full in 10:00"),
        (2.4 * 3600, "", "full in about 2 h"),
        (40 * 3600, "", "full in about 40 h"),
        (5.2 * 86400, "", "full in about 5 d"),
        (90 * 86400, "", ""),
    ],
)
def test_what_is_far_is_told_roughly_and_only_while_a_job_writes(seconds, idle, written) -> None:
    assert runway_words(mount(seconds), [], is_short=False) == idle
    assert runway_words(mount(seconds), [WRITER], is_short=False) == written


def test_what_the_host_finds_short_is_told_exactly() -> None:
    assert runway_words(mount(2.5 * 3600), [], is_short=True) == "FULL in 2:30 h"
