"""The diagnostician as a whole: healthy days say nothing, any samples are taken, times are sane, the order is by gravity."""

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remote.protocol.frames import Telemetry
from remote.protocol.telemetry import (
    Diagnosis,
    EngineSample,
    GpuEvent,
    GpuHealth,
    GpuSample,
    JobSample,
    MountSample,
    RankSample,
    TelemetrySample,
)
from remote.telemetry.diagnosis import Diagnostician
from tests.telemetry.diagnosis_samples import (
    GIB,
    HOST,
    IDLE,
    JOB,
    SPIN,
    START,
    Watch,
    codes,
    engine,
    gpu,
    gpus,
    health,
    job,
    mount,
    ranks,
    sample,
    server,
)

RECORDING = Path(__file__).resolve().parents[1] / "recordings/kimi_extraction.jsonl"


class Day:
    """A day of a host on which nothing is wrong: a run in its stages, and nights."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.second = 0

    def samples(self) -> Iterator[TelemetrySample]:
        yield from self._rest(1200)
        yield from self._serve_and_extract()
        yield from self._train()
        yield from self._evaluate()
        yield from self._rest(3600)

    def _sample(self, **changes) -> TelemetrySample:
        self.second += 1
        disks = [mount(fill_rate_bytes_per_s=self._chance.choice([0.0, 2e8, 9e8]) if self.second % 300 < 40 else 0.0)]
        return sample(self.second, **{"mounts": disks, **changes})

    def _gpus(self, owner: str | None, utilization: float, power: float, memory: float) -> list[GpuSample]:
        """Every device wavers; some run into their power cap, at about the clock of the others."""
        return [
            gpu(
                index,
                owner_job_id=owner,
                gpu_utilization=min(1.0, max(0.0, self._chance.gauss(utilization, 0.06))) if utilization else 0.0,
                memory_utilization=max(0.0, self._chance.gauss(memory, 0.05)),
                power_watts=self._chance.gauss(power, 15.0),
                sm_clock_hz=self._chance.gauss(2.1e9, 4e7),
                throttle_reasons=["power cap"] if self._chance.random() < 0.3 else [],
                sampled_at=START + self.second - self._chance.random(),
                health=health(
                    START + self.second, pcie_generation=5 if utilization else 1, ecc_corrected=self.second // 7000
                ),
                energy_joules=500.0 * self.second,
            )
            for index in range(8)
        ]

    def _rest(self, seconds: int) -> Iterator[TelemetrySample]:
        for _ in range(seconds):
            yield self._sample(gpus=self._gpus(None, 0.0, 80.0, 0.0))

    def _serve_and_extract(self) -> Iterator[TelemetrySample]:
        loading = server(activity="load", progress_age_s=400.0)
        for second in range(900):
            resting = self._gpus(JOB, 0.0 if second < 600 else 0.3, 110.0, 0.1)
            yield self._sample(gpus=resting, jobs=[replace(loading, ranks=ranks())])
        for second in range(3000):
            left = 3000 - second
            extraction = job(
                "run-a-extraction",
                agent="extraction",
                activity="extract",
                progress_age_s=self._chance.random() * 6,
                progress_period_s=3.0,
                writes_to="/data",
                bytes_left=left * GIB // 6,
                seconds_left=float(left),
                loss_is_finite=None,
            )
            serving = engine(
                queued_requests=self._chance.randrange(20),
                acceptance_length=None,
                decode_tokens_per_s=self._chance.gauss(16, 2),
            )
            yield self._sample(
                gpus=self._gpus(JOB, 0.9, 500.0, 0.5), jobs=[server(ranks=ranks()), extraction], engines=[serving]
            )

    def _train(self) -> Iterator[TelemetrySample]:
        """Steps, with a checkpoint now and then that rank 0 writes alone while the others spin or rest."""
        for second in range(4000):
            since = second % 600
            saves = since >= 500
            step = job(
                ranks=ranks({0: {"state": "D", "cpu_utilization": 0.0}}) if saves else ranks(),
                activity="checkpoint" if saves else "step",
                progress_age_s=float(since - 500) if saves else self._chance.random() * 3,
                writes_to="/data",
                seconds_left=4000.0 - second,
            )
            working = self._gpus(JOB, 0.95, 520.0, 0.5)
            waiting = [replace(one, **(IDLE if one.gpu_index == 0 else SPIN)) for one in working]
            yield self._sample(gpus=waiting if saves else working, jobs=[step])
        for phase, seconds in (("measurement", 300), ("export", 400)):
            for second in range(seconds):
                last = job(activity=phase, progress_age_s=float(second), ranks=ranks({5: {"cpu_utilization": 0.0}}))
                yield self._sample(gpus=self._gpus(JOB, 0.2, 150.0, 0.1), jobs=[last])

    def _evaluate(self) -> Iterator[TelemetrySample]:
        for second in range(1500):
            arm = job(
                "run-a-evaluation",
                agent="evaluation",
                activity="evaluate",
                progress_age_s=self._chance.random() * 15,
                progress_period_s=8.0,
                acceptance_length=2.7,
            )
            one = engine(running_requests=1, decode_tokens_per_s=90.0, acceptance_length=self._chance.gauss(2.7, 0.4))
            between = second % 20 == 0
            yield self._sample(
                gpus=self._gpus(JOB, 0.05 if between else 0.7, 300.0, 0.3),
                jobs=[server(ranks=ranks()), arm],
                engines=[one],
            )


def test_a_healthy_day_says_nothing():
    diagnostician = Diagnostician()
    for one in Day(1).samples():
        assert diagnostician.advance(one) == [], one.sampled_at - START


def test_a_day_with_lapses_of_the_recorder_says_nothing():
    chance, diagnostician, lapse = random.Random(2), Diagnostician(), 0
    for one in Day(3).samples():
        lapse = chance.randrange(1, 300) if not lapse and chance.random() < 0.01 else max(0, lapse - 1)
        if not lapse:
            assert diagnostician.advance(one) == [], one.sampled_at - START


def test_the_gravest_comes_first():
    watch = Watch()
    hot = gpus({1: {"throttle_reasons": ["thermal (software)"]}, 2: {"error": "GPU is lost"}})
    stopped = ranks({3: {"state": "T"}})
    watch.show(30, gpus=hot, jobs=[job(ranks=stopped)], mounts=[mount(free_bytes=0)])
    assert codes(watch.told) == ["hardware", "straggler", "runway_short", "throttled"]
    assert [one.severity for one in watch.told] == ["error", "error", "error", "warning"]


def test_what_was_not_told_yet_begins_anew_after_a_gap():
    resting = {"gpus": gpus({3: IDLE}), "jobs": [job()]}
    watch = Watch()
    watch.show(30, gpus=gpus(), jobs=[job()])
    watch.show(50, **resting)
    watch.skip(120)
    assert watch.show(40, **resting) == []
    watch.show(40, **resting)
    assert codes(watch.told) == ["gpu_idle"]


def test_what_is_told_stays_over_a_gap_if_it_is_still_there():
    stopped = {"jobs": [job(ranks=ranks({3: {"state": "T"}}))]}
    watch = Watch()
    watch.show(10, **stopped)
    since = watch.only("straggler").since
    watch.skip(600)
    watch.show(1, **stopped)
    assert watch.only("straggler").since == since
    watch.skip(600)
    assert watch.show(1, jobs=[job(ranks=ranks())]) == []


def test_a_clock_that_is_set_back_moves_no_beginning_into_the_future():
    stopped = {"jobs": [job(ranks=ranks({3: {"state": "T"}}))]}
    watch = Watch()
    watch.skip(4000)
    watch.show(10, **stopped)
    watch.skip(-3600)
    watch.show(1, **stopped)
    since = watch.only("straggler").since
    assert since == START + watch.second
    watch.show(100, **stopped)
    assert watch.only("straggler").since == since
    assert watch.show(20, jobs=[job(ranks=ranks())]) == []


def _recorded() -> list[TelemetrySample]:
    """The samples of the recording, without the diagnoses that were invented with it."""
    kinds, frames = msgspec.json.Decoder(dict), msgspec.json.Decoder(Telemetry)
    found = [kinds.decode(line)["what"] for line in RECORDING.read_bytes().splitlines()]
    telemetry = [frames.decode(msgspec.json.encode(what)) for what in found if what["type"] == "telemetry"]
    return [replace(one.sample, diagnoses=[]) for one in telemetry]


def _told_of(samples: list[TelemetrySample]) -> list[Diagnosis]:
    diagnostician = Diagnostician()
    return [diagnostician.advance(one) for one in samples][-1]


def test_the_recorded_extraction_has_a_narrow_link_and_a_row_to_be_remapped_and_a_cap_that_costs_nothing():
    told = _told_of(_recorded())
    assert {(one.code, one.severity, one.subject) for one in told} == {
        ("hardware", "error", "GPU 6"),
        ("hardware", "warning", "GPU 6"),
        ("hardware", "warning", "GPU 2"),
    }
    assert "needs recovery, says its driver: reset" in told[0].summary
    assert any("XID 63" in one.summary for one in told)


def test_the_recorded_extraction_on_a_smaller_disk_will_not_have_room():
    samples = _recorded()
    lost = samples[0].mounts[0].free_bytes - 100 * GIB
    smaller = [
        replace(one, mounts=[replace(one.mounts[0], free_bytes=one.mounts[0].free_bytes - lost), *one.mounts[1:]])
        for one in samples
    ]
    (short,) = [one for one in _told_of(smaller) if one.code == "runway_short"]
    assert short.severity == "error"
    assert short.summary.startswith("/workspace is full in ")
    assert "extraction still needs 28 min" in short.summary


maybe = st.none() | st.floats(-1e3, 1e12, allow_nan=False)
count = st.none() | st.integers(-5, 10**12)
fraction = st.none() | st.floats(0, 1) | st.sampled_from([0.0, 1.0])
name = st.sampled_from(["a", "b", "c"])


def _of(kind: type, **given_fields) -> st.SearchStrategy:
    """Samples of a kind: every field that may be None is, or has any value; the others are given."""
    return st.builds(kind, **given_fields)


gpu_samples = _of(
    GpuSample,
    gpu_index=st.integers(0, 4),
    name=st.just("device"),
    uuid=name,
    gpu_utilization=fraction,
    memory_utilization=fraction,
    memory_used_bytes=count,
    memory_total_bytes=count,
    power_watts=maybe,
    power_limit_watts=maybe,
    temperature_celsius=maybe,
    temperature_margin_celsius=maybe,
    sm_clock_hz=maybe,
    energy_joules=maybe,
    throttle_reasons=st.lists(st.sampled_from(["power cap", "thermal (hardware)", "?"]), max_size=2),
    owner_job_id=st.none() | name,
    error=st.none() | st.sampled_from(["GPU is lost", "GPU requires reset"]),
    sampled_at=st.none() | st.floats(START - 1e4, START + 1e4),
    health=st.none()
    | st.builds(
        GpuHealth,
        sampled_at=st.just(START),
        pcie_width=count,
        pcie_width_max=count,
        pcie_replays=count,
        ecc_corrected=count,
        ecc_uncorrected=count,
        remapping_pending=st.none() | st.booleans(),
        remapping_failed=st.none() | st.booleans(),
        recovery_action=st.none() | st.sampled_from(["none", "reset", ""]),
    ),
)
rank_samples = _of(
    RankSample,
    rank=st.integers(0, 4),
    pid=st.integers(1, 9),
    state=st.sampled_from("RSDTt"),
    cpu_utilization=fraction,
    gpu_index=st.none() | st.integers(0, 4),
)
job_samples = _of(
    JobSample,
    job_id=name,
    agent=st.sampled_from(["", "server", "training"]),
    run_id=st.none() | name,
    process_count=st.integers(0, 9),
    cpu_utilization=maybe,
    memory_bytes=st.just(1),
    ranks=st.lists(rank_samples, max_size=4),
    suspended_pids=st.lists(st.integers(1, 9), max_size=2),
    activity=st.sampled_from(["", "step", "load", "serve", "extract", "evaluate", "?"]),
    progress_age_s=maybe,
    progress_period_s=maybe,
    loss_is_finite=st.none() | st.booleans(),
    acceptance_length=maybe,
    writes_to=st.none() | st.sampled_from(["/", "/data"]),
    bytes_left=count,
    seconds_left=maybe,
)
engine_samples = _of(
    EngineSample,
    job_id=name,
    engine=name,
    running_requests=count,
    queued_requests=count,
    prefill_tokens_per_s=maybe,
    decode_tokens_per_s=maybe,
    cache_usage=fraction,
    acceptance_length=maybe,
    acceptance_rate=fraction,
    is_answering=st.booleans(),
)
mount_samples = _of(
    MountSample,
    path=st.sampled_from(["/", "/data"]),
    used_bytes=st.just(0),
    total_bytes=st.integers(0, 10**13),
    free_bytes=st.integers(0, 10**13),
    free_inodes=count,
    total_inodes=count,
    fill_rate_bytes_per_s=maybe,
)
events = _of(
    GpuEvent,
    at=st.floats(START - 1e5, START + 1e5),
    gpu_index=st.none() | st.integers(0, 4),
    xid=st.none() | st.integers(0, 200),
    text=name,
    source=st.sampled_from(["nvml", "kernel_log"]),
)
series = st.lists(
    st.tuples(
        st.floats(-7200, 7200) | st.sampled_from([1.0, 5.0, 0.0]),
        st.builds(
            TelemetrySample,
            sampled_at=st.just(START),
            host=st.just(HOST),
            gpu_source=st.sampled_from(["nvml", "none", "error", "simulated"]),
            gpu_detail=name,
            gpus=st.lists(gpu_samples, max_size=4, unique_by=lambda one: one.gpu_index),
            mounts=st.lists(mount_samples, max_size=2, unique_by=lambda one: one.path),
            engines=st.lists(engine_samples, max_size=2, unique_by=lambda one: one.job_id),
            jobs=st.lists(job_samples, max_size=3, unique_by=lambda one: one.job_id),
            gpu_events=st.lists(events, max_size=2),
        ),
        st.sampled_from([1, 4, 12, 65]),
    ),
    max_size=3,
)


@settings(max_examples=100, deadline=None)
@given(series=series)
def test_any_samples_are_taken_and_no_beginning_is_later_than_now_or_moves(series: list):
    """Each sample is shown for some seconds, then the clock leaps to the next."""
    diagnostician, now, before, set_back = Diagnostician(), START, [], True
    for leap, shown, seconds in series:
        now, set_back = now + leap, leap < 0
        for _ in range(seconds):
            now += 1.0
            told = diagnostician.advance(replace(shown, sampled_at=now))
            assert all(one.since <= now for one in told)
            known = {(one.code, one.subject, one.job_id, one.since) for one in before}
            for one in told:
                subjects = {(code, subject, job_id) for code, subject, job_id, _ in known}
                is_new = (one.code, one.subject, one.job_id) not in subjects or one.code in (
                    "hardware",
                    "straggler",
                    "throttled",
                )
                assert is_new or set_back or (one.code, one.subject, one.job_id, one.since) in known
            assert [one.severity for one in told] == sorted(one.severity for one in told)
            assert all(one.summary and one.evidence and one.advice for one in told)
            before, set_back = told, False
