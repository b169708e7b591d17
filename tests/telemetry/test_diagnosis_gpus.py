"""Devices that rest, lag, are held back or were not read: told in time, and nothing else is."""

import pytest

from tests.telemetry.diagnosis_samples import IDLE, JOB, START, Watch, codes, engine, gpu, gpus, job, ranks, server


def test_a_device_at_rest_among_working_peers_is_told_after_a_minute():
    watch = Watch()
    watch.show(30, gpus=gpus(), jobs=[job()])
    assert watch.show(59, gpus=gpus({3: IDLE}), jobs=[job(ranks=ranks())]) == []
    watch.show(2, gpus=gpus({3: IDLE}), jobs=[job(ranks=ranks())])
    told = watch.only("gpu_idle")
    assert (told.subject, told.job_id, told.since) == ("GPU 3", JOB, START + 31)
    assert "rank 3 (pid 8003" in told.evidence


def test_a_device_that_works_now_and_then_is_not_idle():
    blinks = lambda second: {"gpus": gpus({3: IDLE if second % 20 else {"gpu_utilization": 0.2}})}  # noqa: E731
    assert Watch().show(300, blinks, jobs=[job(ranks=ranks())]) == []


@pytest.mark.parametrize("activity", ["load", "checkpoint", "measurement", "export"])
def test_rest_in_a_quiet_phase_is_no_fault(activity: str):
    watch = Watch()
    for resting in (gpus({3: IDLE}), gpus(**IDLE)):
        assert watch.show(900, gpus=resting, jobs=[job(activity=activity, progress_age_s=900.0)]) == []


def test_a_device_of_nobody_is_no_fault():
    idle = gpus({7: {**IDLE, "owner_job_id": None}})
    assert Watch().show(900, gpus=idle, jobs=[job()]) == []


def test_a_job_that_lets_all_its_devices_rest_is_told_after_minutes():
    watch = Watch()
    assert 299 <= watch.show_until_told("gpu_idle", 400, gpus=gpus(**IDLE), jobs=[job()]) <= 302
    assert watch.only("gpu_idle").subject == JOB


def test_a_server_that_nobody_asks_is_told_after_half_an_hour():
    unasked = {"engines": [engine(running_requests=0, decode_tokens_per_s=0.0, prefill_tokens_per_s=0.0)]}
    watch = Watch()
    assert watch.show(1700, gpus=gpus(**IDLE), jobs=[server()], **unasked) == []
    watch.show(200, gpus=gpus(**IDLE), jobs=[server()], **unasked)
    assert "nobody asks it" in watch.only("gpu_idle").summary


@pytest.mark.parametrize(
    ("lag", "shown"),
    [
        ({"gpu_utilization": 0.3}, "utilisation"),
        ({"sm_clock_hz": 1.2e9}, "clock 1"),
        ({"power_watts": 200.0}, "power 2"),
    ],
)
def test_a_device_far_below_its_peers_is_told_within_half_a_minute_or_so(lag: dict, shown: str):
    watch = Watch()
    watch.show(60, gpus=gpus(), jobs=[job()])
    assert watch.show_until_told("straggler", 40, gpus=gpus({5: lag}), jobs=[job(ranks=ranks())]) >= 20
    told = watch.only("straggler")
    assert told.subject == "GPU 5"
    assert "rank 5 (pid 8005" in told.summary
    assert shown in told.evidence


def test_uneven_work_is_no_straggler():
    uneven = {index: {"gpu_utilization": 0.3} for index in range(4)}
    slightly = {5: {"gpu_utilization": 0.6, "power_watts": 400.0, "sm_clock_hz": 1.8e9}}
    for changed in (uneven, slightly):
        assert Watch().show(200, gpus=gpus(changed), jobs=[job()]) == []


def test_a_device_that_lags_while_another_works_alone_for_a_checkpoint_is_no_straggler():
    exporting = gpus({5: {"gpu_utilization": 0.1}})
    assert Watch().show(200, gpus=exporting, jobs=[job(activity="export")]) == []


HOT = {"throttle_reasons": ["thermal (hardware)"], "temperature_celsius": 96.0, "temperature_margin_celsius": 0.0}


def test_heat_is_told_after_ten_seconds_with_its_figures():
    watch = Watch()
    watch.show(20, gpus=gpus(), jobs=[job()])
    hot = gpus({4: {**HOT, "sm_clock_hz": 1.4e9}})
    assert watch.show(9, gpus=hot, jobs=[job()]) == []
    watch.show(3, gpus=hot, jobs=[job()])
    told = watch.only("throttled")
    assert told.subject == "GPU 4"
    assert "96 °C" in told.evidence
    assert "at its temperature limit" in told.evidence
    assert "1400 MHz" in told.evidence
    assert "2100 MHz" in told.evidence


def test_heat_that_comes_and_goes_is_one_diagnosis_and_does_not_flicker():
    watch = Watch()
    blinking = lambda second: {"gpus": gpus({4: HOT if second % 4 else {}})}  # noqa: E731
    watch.show_until_told("throttled", 20, blinking)
    since = watch.only("throttled").since
    for _ in range(120):
        watch.show(1, blinking)
        assert watch.only("throttled").since == since
    assert watch.show(40, gpus=gpus()) == []


def test_a_moment_of_heat_is_not_told():
    watch = Watch()
    assert watch.show(6, gpus=gpus({4: HOT})) == []
    assert watch.show(60, gpus=gpus()) == []


def test_a_power_cap_is_told_only_when_it_costs_much_of_the_clock():
    capped = {"throttle_reasons": ["power cap"], "power_watts": 598.0}
    assert Watch().show(600, gpus=gpus({4: {**capped, "sm_clock_hz": 1.9e9}}), jobs=[job()]) == []
    watch = Watch()
    slow = gpus({4: {**capped, "sm_clock_hz": 1.6e9}})
    assert 119 <= watch.show_until_told("throttled", 200, gpus=slow, jobs=[job()]) <= 150
    assert "limit 600 W" in watch.only("throttled").evidence


def test_a_device_that_was_not_read_for_long_is_told_while_others_are_fresh():
    def old(second: float) -> dict:
        last = START + min(second, 30.0)
        return {"gpus": [gpu(index, sampled_at=last if index == 2 else START + second) for index in range(8)]}

    watch = Watch()
    assert watch.show(30, old) == []
    assert 10 <= watch.show_until_told("stale_telemetry", 20, old) <= 16
    assert watch.only("stale_telemetry").subject == "GPU 2"
    all_old = lambda second: {"gpus": [gpu(index, sampled_at=START) for index in range(8)]}  # noqa: E731
    assert Watch().show(60, all_old) == []


def test_a_healthy_job_is_not_told():
    assert codes(Watch().show(600, gpus=gpus(), jobs=[job(ranks=ranks())])) == []
