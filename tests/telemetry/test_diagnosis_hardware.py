"""What devices and driver report: told at once or when it lasts, with advice for its kind, and remembered."""

from typing import Any

import pytest

from remote.protocol.telemetry import GpuEvent, GpuSample
from remote.telemetry.xid import meaning_of
from tests.telemetry.diagnosis_samples import JOB, START, Watch, codes, gpu, gpus, health


def with_health(index: int = 3, **changes: Any) -> list[GpuSample]:
    return [gpu(other, health=health(START, **changes if other == index else {})) for other in range(8)]


def event(at: float, xid: int | None, index: int | None = 3) -> GpuEvent:
    return GpuEvent(at=at, gpu_index=index, xid=xid, text="Xid (PCI:0000:41:00)", source="nvml")


def test_a_lost_device_is_told_after_three_seconds():
    watch = Watch()
    watch.show(10, gpus=gpus())
    lost = gpus({3: {"error": "GPU is lost", "gpu_utilization": None, "power_watts": None}})
    assert watch.show(3, gpus=lost) == []
    watch.show(1, gpus=lost)
    told = watch.only("hardware")
    assert (told.subject, told.severity) == ("GPU 3", "error")
    assert "reboot" in told.advice


LOST = {"error": "the GPU is lost, off its bus", "gpu_utilization": None, "power_watts": None}


def test_a_device_that_is_lost_with_an_xid_is_one_fault():
    watch = Watch()
    watch.show(10, gpus=gpus())
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 10.5, 79)])
    watch.show(1, gpus=gpus({3: LOST}))
    told = watch.show(3600 + 60, gpus=gpus({3: LOST}))
    assert codes(told) == ["hardware"]
    assert told[0].since == START + 10.5
    assert told[0].evidence == "an event of NVML, no answer since: the GPU is lost, off its bus"
    assert told[0].job_id == JOB
    assert watch.show(60, gpus=gpus()) == [], "it came back, and its event is more than an hour old"


def test_a_device_that_is_lost_long_after_an_xid_has_two_faults():
    watch = Watch()
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 1, 119)])
    watch.show(100, gpus=gpus())
    watch.show(10, gpus=gpus({3: LOST}))
    assert codes(watch.told) == ["hardware", "hardware"]


def test_what_follows_a_grave_event_within_seconds_is_told_with_it():
    watch = Watch()
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 1, 48)])
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 2, 63), event(START + 2, 31, index=5)])
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 3, 154)])
    told = {one.subject: one for one in watch.told}
    assert len(watch.told) == 2
    assert "XID 48" in told["GPU 3"].summary
    assert "then XID 63" in told["GPU 3"].evidence
    assert "then XID 154" in told["GPU 3"].evidence
    assert "XID 31" in told["GPU 5"].summary


def test_what_comes_after_a_lesser_event_is_another_fault():
    watch = Watch()
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 1, 31)])
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 2, 79)])
    assert codes(watch.told) == ["hardware", "hardware"]


def test_the_kernels_own_words_are_shown_without_the_meaning_again():
    watch = Watch()
    text = "XID 79: it has fallen off the bus (pid=12, name=python)"
    watch.show(1, gpu_events=[GpuEvent(at=START, gpu_index=3, xid=79, text=text, source="kernel_log")])
    assert watch.only("hardware").evidence == "the kernel's log: pid=12, name=python"


def test_one_failed_call_is_not_told():
    watch = Watch()
    watch.show(2, gpus=gpus({3: {"error": "Unknown Error"}}))
    assert watch.show(30, gpus=gpus()) == []


def test_a_driver_that_hangs_is_one_fault_and_not_eight():
    stuck = lambda second: {"gpus": gpus(error=f"the NVIDIA driver has not answered for {second:.0f} s")}  # noqa: E731
    watch = Watch()
    watch.show(20, stuck, gpu_source="error", gpu_detail="the NVIDIA driver has not answered")
    assert watch.only("hardware").subject == "NVIDIA driver"


def test_devices_that_all_fail_are_one_fault_of_the_driver():
    watch = Watch()
    watch.show(10, gpus=gpus(error="the NVIDIA driver has not answered for this device for 9 s"))
    told = watch.only("hardware")
    assert told.subject == "NVIDIA driver"
    assert "for this device for 9 s" in told.evidence


def test_a_driver_that_wakes_up_has_time_for_its_first_answer():
    waiting = gpus(error="not read yet")
    assert Watch().show(50, gpus=waiting) == []
    assert Watch().show(50, gpus=waiting[:1]) == []
    assert codes(Watch().show(70, gpus=waiting)) == ["hardware"]


def test_an_event_stays_told_for_an_hour():
    watch = Watch()
    watch.show(5, gpus=gpus())
    watch.show(1, gpus=gpus(), gpu_events=[event(START + 5.5, 79)])
    told = watch.only("hardware")
    assert (told.subject, told.severity, told.since) == ("GPU 3", "error", START + 5.5)
    assert "XID 79, it has fallen off the bus" in told.summary
    watch.show(3500, gpus=gpus())
    assert watch.only("hardware").since == START + 5.5
    assert watch.show(120, gpus=gpus()) == []


def test_the_same_event_again_is_counted():
    watch = Watch()
    for second in range(3):
        watch.show(1, gpus=gpus(), gpu_events=[event(START + second, 31)])
    assert "seen 3 times" in watch.only("hardware").evidence


def test_a_driver_that_was_loaded_anew_has_no_past():
    watch = Watch()
    watch.show(1, gpus=gpus(energy_joules=5e6), gpu_events=[event(START, 119)])
    assert codes(watch.told) == ["hardware"]
    assert watch.show(3, gpus=gpus(energy_joules=10.0)) == []


def test_a_device_that_was_reset_has_no_past_and_the_others_have():
    watch = Watch()
    both = [event(START, 119, index=2), event(START, 119, index=3)]
    watch.show(1, gpus=gpus(energy_joules=5e6), gpu_events=both)
    watch.show(2, gpus=gpus({3: {"energy_joules": 10.0}}, energy_joules=5e6))
    assert watch.only("hardware").subject == "GPU 2"


def test_an_old_event_of_the_kernels_log_is_told_for_the_rest_of_its_hour():
    watch = Watch()
    watch.show(1, gpu_events=[event(START - 3000, 79), event(START - 4000, 31)])
    assert watch.only("hardware").since == START - 3000
    assert watch.show(700) == []


def test_an_event_of_the_future_began_now():
    watch = Watch()
    watch.show(1, gpu_events=[event(START + 1e6, 79)])
    assert watch.only("hardware").since == START + 1


def test_an_event_without_device_and_number_is_told_of_the_driver():
    watch = Watch()
    watch.show(1, gpu_events=[event(START, None, None)])
    assert watch.only("hardware").subject == "NVIDIA driver"


def test_every_xid_has_a_meaning_and_an_advice():
    for xid in (*range(160), 999):
        meaning = meaning_of(xid)
        assert meaning.text
        assert meaning.advice
        watch = Watch()
        watch.show(1, gpu_events=[event(START, xid)])
        assert "GPU`" not in watch.only("hardware").advice
        assert "-i GPU" not in watch.only("hardware").advice


def test_growth_of_uncorrectable_errors_is_told_and_old_ones_are_not():
    watch = Watch()
    assert watch.show(60, gpus=with_health(ecc_uncorrected=4)) == []
    watch.show(1, gpus=with_health(ecc_uncorrected=5))
    told = watch.only("hardware")
    assert told.severity == "error"
    assert "1 within the hour, 5 since" in told.evidence
    watch.show(1800, gpus=with_health(ecc_uncorrected=5))
    assert codes(watch.told) == ["hardware"]
    assert watch.show(1900, gpus=with_health(ecc_uncorrected=5)) == []


def test_counters_that_fall_began_anew():
    watch = Watch()
    watch.show(5, gpus=with_health(ecc_uncorrected=4, pcie_replays=5000, ecc_corrected=900))
    assert watch.show(5, gpus=with_health(ecc_uncorrected=0, pcie_replays=0, ecc_corrected=0)) == []


def test_corrected_errors_are_told_when_they_are_many():
    slow = lambda second: {"gpus": with_health(ecc_corrected=int(second / 60))}  # noqa: E731
    fast = lambda second: {"gpus": with_health(ecc_corrected=int(second))}  # noqa: E731
    assert Watch().show(900, slow) == []
    watch = Watch()
    assert watch.show_until_told("hardware", 150, fast) >= 100
    assert watch.only("hardware").severity == "warning"


def test_replays_are_told_above_eight_a_minute():
    few = lambda second: {"gpus": with_health(pcie_replays=int(second / 10))}  # noqa: E731
    many = lambda second: {"gpus": with_health(pcie_replays=int(second / 4))}  # noqa: E731
    assert Watch().show(300, few) == []
    watch = Watch()
    watch.show_until_told("hardware", 80, many)
    assert "replays within a minute" in watch.only("hardware").evidence


@pytest.mark.parametrize(
    ("fault", "words", "severity"),
    [
        ({"remapping_pending": True}, "nvidia-smi -r -i 3", "warning"),
        ({"remapping_failed": True}, "exchanged", "error"),
        ({"recovery_action": "reset"}, "nvidia-smi -r -i 3", "error"),
        ({"recovery_action": "reboot"}, "reboot the host", "error"),
        ({"recovery_action": "drain peer-to-peer"}, "nvidia-smi -q", "error"),
    ],
)
def test_what_a_device_says_of_itself_is_told_with_what_to_do(fault: dict, words: str, severity: str):
    watch = Watch()
    watch.show(2, gpus=with_health(**fault))
    told = watch.only("hardware")
    assert (told.subject, told.severity) == ("GPU 3", severity)
    assert words in told.advice


def test_a_narrow_link_is_told_under_load_and_a_slow_one_at_rest_is_not():
    watch = Watch()
    assert 30 <= watch.show_until_told("hardware", 60, gpus=with_health(pcie_width=8)) <= 45
    assert "8 of 16 PCIe lanes" in watch.only("hardware").summary
    resting = [
        gpu(index, gpu_utilization=0.0, health=health(START, pcie_width=4, pcie_generation=1)) for index in range(8)
    ]
    assert Watch().show(120, gpus=resting) == []
    assert Watch().show(120, gpus=with_health(pcie_generation=1)) == []
