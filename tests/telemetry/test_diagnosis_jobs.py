"""Suspended and silent ranks, devices that only seem to work, jobs that stand still, losses that are none."""

import pytest

from tests.telemetry.diagnosis_samples import (
    IDLE,
    JOB,
    SPIN,
    START,
    Watch,
    codes,
    engine,
    gpus,
    job,
    ranks,
    server,
)


def growing(began: float, **changes):
    """A job whose last progress was at second `began`."""
    return lambda second: {"jobs": [job(progress_age_s=second - began, **changes)]}


def test_one_suspended_rank_is_told_within_seconds_and_by_name():
    watch = Watch()
    watch.show(60, gpus=gpus(), jobs=[job(ranks=ranks())])
    stopped = ranks({3: {"state": "T", "cpu_utilization": 0.0}})
    took = watch.show_until_told("straggler", 30, growing(60, ranks=stopped), gpus=gpus({3: IDLE}, **SPIN))
    assert took <= 5
    told = watch.only("straggler")
    assert (told.severity, told.job_id, told.since) == ("error", JOB, START + 61)
    assert "rank 3 (pid 8003, GPU 3) of training is suspended" in told.summary
    assert "kill -CONT 8003" in told.advice


def test_what_a_suspended_rank_brings_about_is_not_told_beside_it():
    watch = Watch()
    stopped = ranks({3: {"state": "T", "cpu_utilization": 0.0}})
    told = watch.show(300, growing(0, ranks=stopped), gpus=gpus({3: IDLE}, **SPIN))
    assert codes(told) == ["straggler"]


def test_a_suspended_rank_is_told_in_every_phase_for_a_signal_is_no_phase():
    watch = Watch()
    watch.show(10, jobs=[job(activity="checkpoint", ranks=ranks({1: {"state": "T"}}))])
    assert codes(watch.told) == ["straggler"]


def test_a_single_process_that_is_suspended_is_told_too():
    watch = Watch()
    watch.show(10, jobs=[job(suspended_pids=[4711])])
    assert "process 4711 of training is suspended" in watch.only("straggler").summary


def test_a_moment_under_a_tracer_is_no_suspension():
    watch = Watch()
    assert watch.show(3, jobs=[job(suspended_pids=[4711])]) == []
    assert watch.show(30, jobs=[job()]) == []


def test_a_rank_that_goes_on_is_dropped_without_a_flash_of_what_it_caused():
    watch = Watch()
    stopped = ranks({3: {"state": "T", "cpu_utilization": 0.0}})
    watch.show(120, growing(0, ranks=stopped), gpus=gpus({3: IDLE}, **SPIN))
    for _ in range(60):
        told = watch.show(1, gpus=gpus(), jobs=[job(ranks=ranks())])
        assert set(codes(told)) <= {"straggler"}
    assert told == []


@pytest.mark.parametrize("state", ["S", "D"])
def test_a_silent_rank_among_spinning_peers_is_told_within_half_a_minute(state: str):
    watch = Watch()
    watch.show(60, gpus=gpus(), jobs=[job(ranks=ranks())])
    silent = ranks({6: {"state": state, "cpu_utilization": 0.0}})
    assert watch.show_until_told("straggler", 30, gpus=gpus({6: IDLE}), jobs=[job(ranks=silent)]) >= 20
    told = watch.only("straggler")
    assert told.subject == "rank 6"
    assert "pid 8006, GPU 6" in told.summary


@pytest.mark.parametrize("activity", ["load", "checkpoint", "measurement", "export"])
def test_one_rank_that_works_or_rests_alone_in_a_quiet_phase_is_no_straggler(activity: str):
    rests = ranks({0: {"state": "D", "cpu_utilization": 0.0}})
    works = ranks({rank: {"state": "S", "cpu_utilization": 0.0} for rank in range(1, 8)})
    for lonely in (rests, works):
        told = Watch().show(300, growing(0, activity=activity, ranks=lonely), gpus=gpus({0: IDLE}))
        assert told == []


def test_ranks_that_all_sleep_are_no_stragglers():
    asleep = ranks({rank: {"state": "S", "cpu_utilization": 0.0} for rank in range(8)})
    idle = {"engines": [engine(running_requests=0, decode_tokens_per_s=0.0, prefill_tokens_per_s=0.0)]}
    assert Watch().show(300, gpus=gpus(**IDLE), jobs=[server(ranks=asleep)], **idle) == []


def test_devices_that_spin_without_progress_are_told():
    watch = Watch()
    watch.show(60, gpus=gpus(), jobs=[job()])
    assert 30 <= watch.show_until_told("busy_not_working", 60, growing(60), gpus=gpus(**SPIN)) <= 45
    told = watch.only("busy_not_working")
    assert "GPU 0, 1, 2, 3, 4, 5, 6 and 7 at 100%, " in told.evidence
    assert told.subject == JOB
    assert "of 600 W" in told.evidence
    assert "usually 2 s" in told.evidence
    assert told.since == pytest.approx(START + 60, abs=2.0), "not when it was noticed, but when it last got on"


def test_without_power_and_memory_figures_the_pace_decides():
    blind = {"gpu_utilization": 1.0, "power_watts": None, "memory_utilization": None}
    watch = Watch()
    assert watch.show_until_told("busy_not_working", 60, growing(0), gpus=gpus(**blind)) >= 30


@pytest.mark.parametrize(
    ("work", "quiet"),
    [
        ({**SPIN, "power_watts": 500.0}, {}),
        ({**SPIN, "memory_utilization": 0.4}, {}),
        ({**SPIN, "gpu_utilization": 0.6}, {}),
        (SPIN, {"activity": "checkpoint"}),
        (SPIN, {"activity": "measurement"}),
        (SPIN, {"progress_period_s": 10.0}),
        (SPIN, {"progress_period_s": None}),
    ],
)
def test_devices_that_work_or_may_wait_are_not_told(work: dict, quiet: dict):
    assert Watch().show(50, growing(0, **quiet), gpus=gpus(**work)) == []


def test_a_server_that_spins_with_requests_and_without_tokens_is_told():
    hung = engine(decode_tokens_per_s=0.0, prefill_tokens_per_s=0.0)
    watch = Watch()
    assert 60 <= watch.show_until_told("busy_not_working", 90, gpus=gpus(**SPIN), jobs=[server()], engines=[hung]) <= 75
    assert "8 requests at work without a token" in watch.only("busy_not_working").evidence


def test_a_server_is_judged_by_the_job_that_it_serves():
    def served(second: float) -> dict:
        extraction = job("run-a-extraction", agent="extraction", activity="extract", progress_age_s=second)
        return {"jobs": [server(), extraction]}

    watch = Watch()
    silent = engine(running_requests=None, decode_tokens_per_s=None, prefill_tokens_per_s=None, acceptance_length=None)
    watch.show_until_told("busy_not_working", 60, served, gpus=gpus(**SPIN), engines=[silent])
    assert "extraction without progress" in watch.only("busy_not_working").evidence


def test_a_job_that_does_not_get_on_is_told_whatever_its_devices_do():
    watch = Watch()
    watch.show(30, jobs=[job()])
    assert 60 <= watch.show_until_told("no_progress", 90, growing(30)) <= 62
    assert "usually every 2 s" in watch.only("no_progress").evidence
    assert watch.show(30, jobs=[job()]) == []


@pytest.mark.parametrize(
    "excuse",
    [
        {"activity": "checkpoint"},
        {"activity": "export"},
        {"activity": "load"},
        {"progress_period_s": 30.0},
        {"progress_period_s": None},
        {"seconds_left": 0.0},
    ],
)
def test_a_job_that_is_not_due_is_not_told(excuse: dict):
    assert Watch().show(290, growing(0, **excuse)) == []


def test_a_job_that_waits_for_room_is_paused_and_has_time_to_go_on():
    watch = Watch()
    assert watch.show(900, growing(0, activity="paused")) == []
    assert watch.show(50, growing(0)) == []
    assert codes(watch.show(20, growing(0))) == ["no_progress"]


def test_a_clock_that_leaps_forward_is_no_standstill():
    watch = Watch()
    watch.show(60, jobs=[job()])
    watch.skip(3600)
    assert watch.show(5, jobs=[job(progress_age_s=3602.0)]) == []
    assert watch.show(60, jobs=[job()]) == []


def test_a_recorder_that_begins_late_tells_a_standstill_at_once():
    watch = Watch()
    watch.show(2, jobs=[job(progress_age_s=900.0)])
    assert codes(watch.told) == ["no_progress"]


def test_a_loss_that_is_not_finite_outlives_its_job():
    watch = Watch()
    watch.show(10, jobs=[job()])
    watch.show(1, jobs=[job(loss=None, loss_is_finite=False)])
    since = watch.only("loss_not_finite").since
    assert since == START + 11
    watch.show(1200, jobs=[])
    assert watch.only("loss_not_finite").since == since
    assert watch.show(700, jobs=[]) == []


def test_a_run_that_trains_again_forgets_the_loss():
    watch = Watch()
    watch.show(2, jobs=[job(loss=None, loss_is_finite=False)])
    assert codes(watch.told) == ["loss_not_finite"]
    assert watch.show(15, jobs=[job("run-a-training-2")]) == []
