"""The recorded readings: nothing whole is lost, nothing torn is taken for whole, and they stay within their bytes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remote.protocol.telemetry import Diagnosis, GpuEvent
from remote.telemetry.ring import Ring, RingPlan, closed_segments, oldest_sample_at, read_ring
from remote.telemetry.thinning import Thinner, combine
from tests.telemetry.readings import T0, gpu, host, sample

SMALL = (RingPlan("1s", 1.0, 20.0, 1 << 20), RingPlan("10s", 10.0, 200.0, 1 << 20))

gaps = st.lists(st.sampled_from([1.0, 1.001, 2.0, 7.5, 45.0]), min_size=1, max_size=120)


def times(steps: list[float]) -> list[float]:
    at, found = T0, []
    for step in steps:
        found.append(at)
        at += step
    return found


def written(directory: Path, moments: list[float], plans: tuple[RingPlan, ...] = SMALL) -> None:
    ring = Ring(directory, plans)
    for at in moments:
        ring.append(sample(at))
    ring.close()


def read_times(
    directory: Path, since: float = 0.0, until: float = 1e12, plans: tuple[RingPlan, ...] = SMALL
) -> list[float]:
    return [found.sampled_at for found in read_ring(directory, since, until, 1.0, plans)]


@given(gaps)
@settings(max_examples=40)
def test_what_is_written_is_read_in_its_order_and_gaps_stay_gaps(tmp_path_factory, steps):
    directory = tmp_path_factory.mktemp("ring")
    moments = times(steps)
    written(directory, moments)
    assert read_times(directory) == moments
    middle = moments[len(moments) // 2]
    assert read_times(directory, since=middle) == [at for at in moments if at >= middle]
    assert read_times(directory, until=middle) == [at for at in moments if at < middle]
    assert oldest_sample_at(directory, SMALL) <= moments[0]


@given(st.integers(0, 4000), st.integers(1, 30))
@settings(max_examples=40)
def test_a_segment_that_a_crash_tore_loses_its_torn_line_alone(tmp_path_factory, cut, more):
    directory = tmp_path_factory.mktemp("ring")
    moments, finest = [T0 + second for second in range(8)], SMALL[:1]
    written(directory, moments, finest)
    active = directory / "1s" / "active.ndjson"
    data = active.read_bytes()
    kept = data[: min(cut, len(data))]
    active.write_bytes(kept)
    whole = moments[: kept.count(b"\n")]
    assert read_times(directory, plans=finest) == whole
    later = [T0 + 100 + second for second in range(more)]
    written(directory, later, finest)
    assert read_times(directory, plans=finest) == whole + later


def test_garbage_in_a_segment_hides_nothing_else(tmp_path):
    written(tmp_path, [T0 + second for second in range(50)])
    first, *_ = closed_segments(tmp_path / "1s")
    first.path.write_bytes(b"no gzip")
    found = read_times(tmp_path)
    assert found[-1] == T0 + 49
    assert len(found) >= 29


def test_a_damaged_byte_anywhere_in_a_segment_hides_nothing_else(tmp_path):
    written(tmp_path, [T0 + second for second in range(50)])
    first, *_ = closed_segments(tmp_path / "1s")
    whole = first.path.read_bytes()
    for place in range(len(whole)):
        first.path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert read_times(tmp_path)[-1] == T0 + 49, place


def test_a_segment_that_is_cut_off_keeps_what_was_before(tmp_path):
    finest = SMALL[:1]
    written(tmp_path, [T0 + second for second in range(50)], finest)
    first, *_ = closed_segments(tmp_path / "1s")
    before, whole = read_times(tmp_path, plans=finest), first.path.read_bytes()
    inside = [at for at in before if at <= first.last]
    kept = []
    for length in range(len(whole)):
        first.path.write_bytes(whole[:length])
        found = read_times(tmp_path, plans=finest)
        kept.append(len([at for at in found if at <= first.last]))
        assert found == inside[: kept[-1]] + before[len(inside) :], length
    assert kept[0] == 0
    assert max(kept) == len(inside)


@pytest.mark.parametrize("garbage", [b"\0" * 64 + b"\n", b"[]\n", b"\xff\r\n"])
@pytest.mark.parametrize("at_the_end", [False, True])
def test_what_a_power_failure_leaves_in_the_segment_in_use_hides_nothing_else(tmp_path, garbage, at_the_end):
    moments, finest = [T0 + second for second in range(8)], SMALL[:1]
    written(tmp_path, moments, finest)
    active = tmp_path / "1s" / "active.ndjson"
    lines = active.read_bytes()
    active.write_bytes(lines + garbage if at_the_end else garbage + lines)
    assert read_times(tmp_path, plans=finest) == moments
    assert oldest_sample_at(tmp_path, finest) == T0
    written(tmp_path, [T0 + 8], finest)
    assert read_times(tmp_path, plans=finest) == [*moments, T0 + 8]


def test_a_killed_writer_leaves_only_whole_samples(tmp_path):
    """And the next one goes on after them."""
    program = """
import sys
from pathlib import Path
from remote.telemetry.ring import Ring
from remote.telemetry.thinning import Thinner, combine
from tests.telemetry.readings import T0, gpu, sample
from tests.telemetry.test_ring import SMALL
ring = Ring(Path(sys.argv[1]), SMALL)
second = 0
while True:
    ring.append(sample(T0 + second, gpus=[gpu(index) for index in range(8)]))
    second += 1
    print(second, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, cwd=Path.cwd())
    told = 0
    while told < 130:
        told = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    told = [told, *map(int, child.communicate()[0].split())][-1]
    found = read_times(tmp_path)
    assert found[:told] == [T0 + second for second in range(told)]
    written(tmp_path, [T0 + 100_000])
    assert read_times(tmp_path)[-1] == T0 + 100_000


def test_two_devices_that_were_lost_before_they_told_their_names_stay_two():
    lost = [gpu(index, name="", uuid="", error="lost", gpu_utilization=None) for index in (1, 2)]
    every = [sample(T0 + second, gpus=lost) for second in range(3)]
    assert [found.gpu_index for found in combine(every).gpus] == [1, 2]


def test_a_ring_stays_within_its_bytes_and_forgets_the_oldest(tmp_path):
    plans = (RingPlan("1s", 1.0, 10.0, 6000), RingPlan("10s", 10.0, 100.0, 1 << 20))
    ring = Ring(tmp_path, plans)
    for second in range(600):
        ring.append(sample(T0 + second))
        sizes = [segment.path.stat().st_size for segment in closed_segments(tmp_path / "1s")]
        assert sum(sizes) <= 6000
    ring.close()
    recent = list(read_ring(tmp_path / "absent", 0, 1e12, 1.0, plans))
    assert recent == []
    by_the_second = closed_segments(tmp_path / "1s")[0].first
    assert by_the_second > T0
    everything = [found.sampled_at for found in read_ring(tmp_path, 0, 1e12, 1.0, plans)]
    assert everything == sorted(set(everything))
    assert everything[-1] == T0 + 599
    # What the fine ring has forgotten comes from the coarse one, thinned.
    old = [at for at in everything if at < by_the_second]
    assert len(old) == pytest.approx((by_the_second - T0) / 10, abs=1)


def test_a_disk_without_room_loses_the_sample_and_nothing_else(tmp_path):
    """The limit of a file's size stands for the full disk: the write comes up short, then fails."""
    program = """
import resource, signal, sys
from pathlib import Path
from remote.telemetry.ring import Ring
from remote.telemetry.thinning import Thinner, combine
from tests.telemetry.readings import T0, sample
from tests.telemetry.test_ring import SMALL
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ring = Ring(Path(sys.argv[1]), SMALL)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
lost = 0
for second in range(18):
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000 if second < 10 else hard, hard))
    try:
        ring.append(sample(T0 + second))
    except OSError:
        lost += 1
print(lost)
"""
    told = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, check=True, text=True)
    lost = int(told.stdout)
    assert 0 < lost < 10
    found = read_times(tmp_path)
    assert found == [T0 + second for second in range(18) if not 10 - lost <= second < 10]


def test_a_clock_that_was_set_back_keeps_the_order(tmp_path):
    written(tmp_path, [T0 + 30, T0 + 31, T0, T0 + 1, T0 + 32])
    assert read_times(tmp_path) == sorted(read_times(tmp_path))
    assert read_times(tmp_path)[-1] == T0 + 32


def test_a_clock_that_was_ahead_for_a_while_hides_nothing_of_what_came_after(tmp_path):
    ahead = [T0 + 1e6 + second for second in range(5)]
    before, after = [T0 + second for second in range(5)], [T0 + 5 + second for second in range(5)]
    written(tmp_path, [*before, *ahead, *after])
    assert read_times(tmp_path) == [*before, *after, *ahead]


def test_what_a_coarse_ring_has_not_got_yet_comes_from_a_finer_one(tmp_path):
    """Nor ever gets, when its writer is killed."""
    start = T0 - T0 % 10
    ring = Ring(tmp_path, SMALL)
    for second in range(6):
        ring.append(sample(start + second))
    assert [found.sampled_at for found in read_ring(tmp_path, 0, 1e12, 10.0, SMALL)] == [start + 5]
    for second in range(6, 24):
        ring.append(sample(start + second))
    told = list(read_ring(tmp_path, 0, 1e12, 10.0, SMALL))
    assert [found.sampled_at for found in told] == [start + 9, start + 19, start + 23]
    assert [found.period_s for found in told] == [10.0, 10.0, 4.0]
    assert [found.sampled_at for found in read_ring(tmp_path, start + 20, 1e12, 10.0, SMALL)] == [start + 23]
    assert [found.sampled_at for found in read_ring(tmp_path, 0, start + 12, 10.0, SMALL)] == [start + 9, start + 11]


def test_a_coarser_step_tells_means_peaks_and_every_trouble(tmp_path):
    hot = Diagnosis(code="throttled", severity="warning", subject="GPU 0", since=T0, summary="", evidence="", advice="")
    event = GpuEvent(at=T0 + 3, gpu_index=0, xid=79, text="off the bus", source="nvml")
    start = T0 - T0 % 10
    ring = Ring(tmp_path, SMALL)
    for second in range(20):
        ring.append(
            sample(
                start + second,
                host=host(cpu_utilization=[0.2 * (second % 2), 1.0]),
                gpus=[gpu(0, gpu_utilization=0.1 * (second % 10), temperature_celsius=50.0 + second)],
                diagnoses=[hot] if second == 4 else [],
                gpu_events=[event] if second == 3 else [],
            )
        )
    ring.close()
    first, second = read_ring(tmp_path, 0, 1e12, 10.0, SMALL)
    assert first.period_s == 10.0
    assert first.sampled_at == start + 9
    assert first.host.cpu_utilization == [0.1, 1.0]
    assert first.gpus[0].gpu_utilization == pytest.approx(0.45)
    assert first.gpus[0].temperature_celsius == 59.0
    assert first.diagnoses == [hot]
    assert first.gpu_events == [event]
    assert (second.diagnoses, second.gpu_events) == ([], [])


def test_files_are_this_users_alone(tmp_path):
    written(tmp_path / "ring", [T0 + second for second in range(50)])
    modes = {path: path.stat().st_mode & 0o077 for path in (tmp_path / "ring").rglob("*")}
    assert set(modes.values()) == {0}, modes


def test_thinning_keeps_the_order_of_samples_whose_periods_differ_by_a_hair():
    thinner = Thinner(10.0)
    moments = [T0 + 10 * number for number in range(20)]
    periods = [9.999 if number % 3 else 10.001 for number in range(20)]
    told = [
        thinned.sampled_at
        for at, period in zip(moments, periods, strict=True)
        for thinned in thinner.add(replace(sample(at), period_s=period))
    ]
    told += [thinned.sampled_at for thinned in thinner.flush()]
    assert told == moments
