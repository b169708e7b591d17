"""`roost telemetry`: now, as it was, as it goes, for Prometheus, and what cannot be asked."""

import json

import msgspec
import pytest
from played_host import NOW, sample_at
from prometheus_client.parser import text_string_to_metric_families
from protocol_samples import DIAGNOSIS, ENGINE_SAMPLE, GPU_EVENT, GPU_SAMPLE, TELEMETRY_SAMPLE

from console.cli.prometheus import exposition
from console.cli.telemetry_text import history_line, telemetry_lines, topology_lines
from console.state.forecast import need_words
from console.state.moments import format_moment
from remote.protocol.telemetry import GpuTopology, ReadHistory


def document(result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def records(result) -> list[dict]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["telemetry"] for line in result.stdout.splitlines()]


def test_a_reading_has_its_age_beside_its_time(recorded, roost) -> None:
    late = msgspec.structs.replace(GPU_SAMPLE, sampled_at=NOW - 12)
    recorded.recorded.append(sample_at(NOW - 2, gpus=[late]))
    telemetry = document(roost("telemetry", "--json"))["telemetry"]
    assert (telemetry["sampled_at"], telemetry["age_s"]) == (NOW - 2, 2.0)
    assert telemetry["gpus"][0]["age_s"] == 12.0
    assert telemetry["gpus"][0]["health"]["age_s"] == NOW - late.health.sampled_at
    text = roost("telemetry").stdout
    assert text.startswith(f"{format_moment(NOW - 2)}, 2 s ago\n")
    assert "no answer for 10 s" in text


def test_watching_is_a_line_a_sample_and_ends_after_the_count(recorded, roost) -> None:
    watched = records(roost("telemetry", "--watch", "--count", "2", "--json"))
    assert [sample["sampled_at"] for sample in watched] == [NOW - 0.5, NOW + 0.5]
    assert [sample["age_s"] for sample in watched] == [0.5, 0.0]


def test_the_history_comes_whole_over_its_pages_and_gaps_stay_gaps(recorded, roost) -> None:
    history = records(roost("telemetry", "--since", "10m", "--json"))
    assert [sample["sampled_at"] for sample in history] == [sample.sampled_at for sample in recorded.recorded[:-1]]
    lines = roost("telemetry", "--since", "10m").stdout.splitlines()
    gaps = [line for line in lines if line.startswith("nothing recorded")]
    assert gaps == [f"nothing recorded from {format_moment(NOW - 401)} to {format_moment(NOW - 281)} (2:00)"]
    assert len(lines) == len(history) + 1


def test_what_was_recorded_neither_at_the_beginning_nor_at_the_end_is_said(recorded, roost) -> None:
    recorded.recorded = [sample_at(NOW - 500 + second) for second in range(10)]
    first, *_, last = roost("telemetry", "--since", "10m").stdout.splitlines()
    assert first == f"nothing recorded from {format_moment(NOW - 600)} to {format_moment(NOW - 501)} (1:39)"
    assert last == f"nothing recorded from {format_moment(NOW - 491)} to {format_moment(NOW)} (8:11)"


def test_since_until_and_step_are_asked_of_the_host_on_its_own_clock(recorded, roost) -> None:
    roost("telemetry", "--since", "2h", "--until", format_moment(NOW - 60), "--step", "10", "--json")
    assert recorded.asked[0] == ReadHistory(since=NOW - 7200, until=NOW - 60, step_s=10.0)


def test_at_gives_the_sample_nearest_before(recorded, roost) -> None:
    moment = format_moment(NOW - 50)
    assert document(roost("telemetry", "--at", moment, "--json"))["telemetry"]["sampled_at"] == NOW - 50
    recorded.recorded.remove(sample_at(NOW - 50))
    assert document(roost("telemetry", "--at", moment, "--json"))["telemetry"]["sampled_at"] == NOW - 51


@pytest.mark.parametrize(
    ("moment", "nearest"), [(NOW - 390, NOW - 401), (NOW - 290, NOW - 280), (NOW - 9e6, NOW - 600)]
)
def test_at_a_time_that_was_not_recorded_names_the_nearest_one_that_was(recorded, roost, moment, nearest) -> None:
    result = roost("telemetry", "--at", format_moment(moment), "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "not_found"
    assert format_moment(nearest) in error["message"]
    advised = error["next_command"].split()[1:]
    assert document(roost(*advised, "--json"))["telemetry"]["sampled_at"] == nearest


def test_at_on_a_host_that_recorded_nothing(played_host, roost) -> None:
    result = roost("telemetry", "--at", "5m")
    assert result.exit_code == 2
    assert "nor at any other time" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--since", "yesterday"), "'yesterday' is no time"),
        (("--since", "2026-11-29T16:00:00"), "names no time zone"),
        (("--since", "5m", "--until", "10m"), "--until 10m is not after --since 5m"),
        (("--since", "9" * 400 + "d"), "longer ago than anything was recorded"),
        (("--at", "99999999999999999999d"), "longer ago than anything was recorded"),
        (("--at", "0001-01-01T00:00:00Z"), "longer ago than anything was recorded"),
        (("--since", "5m", "--step", "inf"), "--step"),
        (("--since", "5m", "--step", "0"), "--step"),
        (("--until", "5m"), "--until needs --since"),
        (("--step", "10"), "--step needs --since"),
        (("--count", "3"), "--count needs --watch"),
        (("--watch", "--since", "5m"), "--watch and --since exclude each other"),
        (("--at", "5m", "--since", "5m"), "--since and --at exclude each other"),
        (("--prometheus", "--json"), "leave --json out"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error_in_a_sentence(played_host, roost, arguments, words) -> None:
    result = roost("telemetry", *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert played_host.asked == []


def test_an_end_before_the_beginning_is_seen_on_the_hosts_clock(recorded, roost) -> None:
    result = roost("telemetry", "--since", "5m", "--until", format_moment(NOW - 400))
    assert result.exit_code == 2
    assert "is not after" in result.output


def test_the_topology_is_a_row_a_pair(played_host, roost) -> None:
    assert "0 – 1  host bridge  ok" in roost("telemetry", "--topology").stdout
    assert document(roost("telemetry", "--topology", "--json"))["topology"]["paths"][0]["ancestor"] == "host bridge"


def test_without_devices_it_is_said_that_there_is_no_driver() -> None:
    none = GpuTopology(driver_version="", cuda_version="", paths=[], events_from="nowhere: no driver is installed")
    assert topology_lines(none) == [
        "driver   none that answers",
        "events   from nowhere: no driver is installed",
        "paths    no two devices",
    ]


def figures(text: str) -> dict[str, list]:
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


def test_prometheus_has_the_names_and_units_of_the_dcgm_exporter() -> None:
    found = figures(exposition(TELEMETRY_SAMPLE, "lab-1", []))
    values = {name: samples[0].value for name, samples in found.items()}
    assert values["DCGM_FI_DEV_GPU_UTIL"] == 75.0
    assert values["DCGM_FI_DEV_MEM_COPY_UTIL"] == 50.0
    assert values["DCGM_FI_DEV_FB_USED"] + values["DCGM_FI_DEV_FB_FREE"] == GPU_SAMPLE.memory_total_bytes / 2**20
    assert values["DCGM_FI_DEV_POWER_USAGE"] == GPU_SAMPLE.power_watts
    assert values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == GPU_SAMPLE.energy_joules * 1000
    assert values["DCGM_FI_DEV_GPU_TEMP"] == GPU_SAMPLE.temperature_celsius
    assert values["DCGM_FI_DEV_SM_CLOCK"] == 2600.0
    assert values["DCGM_FI_DEV_MEM_CLOCK"] == 14000.0
    assert values["DCGM_FI_DEV_XID_ERRORS"] == 79
    assert values["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"] == 12
    assert found["DCGM_FI_DEV_GPU_UTIL"][0].labels == {
        "gpu": "0",
        "UUID": GPU_SAMPLE.uuid,
        "device": "nvidia0",
        "modelName": GPU_SAMPLE.name,
        "Hostname": "lab-1",
    }
    assert found["roost_diagnosis_start_time_seconds"][0].labels["code"] == DIAGNOSIS.code


def test_prometheus_tells_a_series_once_with_its_earliest_time() -> None:
    later = msgspec.structs.replace(DIAGNOSIS, since=DIAGNOSIS.since + 5, summary="another one")
    other = msgspec.structs.replace(DIAGNOSIS, subject="GPU 7")
    sample = msgspec.structs.replace(TELEMETRY_SAMPLE, diagnoses=[later, DIAGNOSIS, other])
    found = figures(exposition(sample, "lab-1", []))["roost_diagnosis_start_time_seconds"]
    assert [(one.labels["subject"], one.value) for one in found] == [
        (DIAGNOSIS.subject, DIAGNOSIS.since),
        ("GPU 7", DIAGNOSIS.since),
    ]


@pytest.mark.parametrize(("source", "value"), [("nvml", 0.0), ("simulated", 1.0)])
def test_prometheus_says_when_the_devices_are_played(source, value) -> None:
    played = msgspec.structs.replace(TELEMETRY_SAMPLE, gpu_source=source)
    assert figures(exposition(played, "lab-1", []))["roost_gpus_simulated"][0].value == value


def test_prometheus_leaves_out_what_is_not_known() -> None:
    unknown = {
        name: None
        for name in GPU_SAMPLE.__struct_fields__
        if name not in ("gpu_index", "name", "uuid", "throttle_reasons")
    }
    gpus = [GPU_SAMPLE, msgspec.structs.replace(GPU_SAMPLE, gpu_index=1, **unknown)]
    found = figures(exposition(sample_at(NOW, gpus=gpus, engines=[]), "lab-1", []))
    for name, samples in found.items():
        if name.startswith("DCGM"):
            assert [sample.labels["gpu"] for sample in samples] == ["0"], name
    assert "DCGM_FI_DEV_XID_ERRORS" not in found
    assert not any(name.startswith("roost_engine") for name in found)
    assert all(sample.value == sample.value for samples in found.values() for sample in samples)


def test_the_last_xid_comes_from_what_was_recorded_in_the_day_before(recorded, roost) -> None:
    recorded.recorded[10] = msgspec.structs.replace(recorded.recorded[10], gpu_events=[GPU_EVENT])
    text = roost("telemetry", "--prometheus").stdout
    assert figures(text)["DCGM_FI_DEV_XID_ERRORS"][0].value == 79


def test_a_device_is_shown_with_its_owner_and_its_troubles() -> None:
    text = "\n".join(telemetry_lines(TELEMETRY_SAMPLE, TELEMETRY_SAMPLE.sampled_at))
    assert GPU_SAMPLE.owner_job_id in text
    for words in ("fell off the bus", "XID 79", "needs reset", "PCIe x8 of x16", "power cap"):
        assert words in text
    simulated = msgspec.structs.replace(TELEMETRY_SAMPLE, gpu_source="simulated")
    assert "SIMULATED" in "\n".join(telemetry_lines(simulated, 0.0))
    assert "SIMULATED" not in text


def test_a_diagnosis_says_what_since_when_why_and_what_to_do() -> None:
    text = "\n".join(telemetry_lines(TELEMETRY_SAMPLE, TELEMETRY_SAMPLE.sampled_at))
    for words in (DIAGNOSIS.summary, DIAGNOSIS.evidence, DIAGNOSIS.advice, "30 s ago", f"[{DIAGNOSIS.code}]"):
        assert words in text
    assert DIAGNOSIS.summary in history_line(TELEMETRY_SAMPLE)


def test_an_engine_that_is_silent_shows_no_rates() -> None:
    text = "\n".join(telemetry_lines(sample_at(NOW), NOW))
    assert "does not answer" in text
    answering = msgspec.structs.replace(ENGINE_SAMPLE, is_answering=True)
    assert "acceptance 1.75 tokens, 25%" in "\n".join(telemetry_lines(sample_at(NOW, engines=[answering]), NOW))


def test_a_disk_says_what_its_writers_still_need() -> None:
    (mount,), (job,) = TELEMETRY_SAMPLE.mounts, TELEMETRY_SAMPLE.jobs
    assert need_words(mount, [job]) == ""
    writer = msgspec.structs.replace(job, writes_to=mount.path)
    assert need_words(mount, [writer]) == ", the training still writes 1.0 TiB for 2:51 h"
    unsure = msgspec.structs.replace(writer, seconds_left=None)
    assert need_words(mount, [unsure]) == ", the training still writes 1.0 TiB"


def test_a_run_says_what_all_its_stages_still_write() -> None:
    (mount,), (job,) = TELEMETRY_SAMPLE.mounts, TELEMETRY_SAMPLE.jobs
    run = msgspec.structs.replace(
        job, job_id="run-a", agent="run", run_id=None, writes_to=mount.path, bytes_left=3 << 40, seconds_left=None
    )
    writer = msgspec.structs.replace(job, run_id="run-a", writes_to=mount.path)
    assert need_words(mount, [run, writer]) == ", the run still writes 3.0 TiB, its training for 2:51 h"
    assert (
        need_words(mount, [msgspec.structs.replace(writer, bytes_left=None)])
        == ", the training still writes for 2:51 h"
    )
    over = msgspec.structs.replace(run, bytes_left=0)
    assert need_words(mount, [over]) == ""


def test_a_disk_is_as_full_as_df_says() -> None:
    """Blocks that are kept for root are neither used nor to be had."""
    (mount,) = TELEMETRY_SAMPLE.mounts
    tight = msgspec.structs.replace(mount, used_bytes=35 << 30, free_bytes=65 << 30, total_bytes=252 << 30)
    text = "\n".join(telemetry_lines(sample_at(NOW, mounts=[tight]), NOW))
    assert "35%, 35.0 GiB of 252 GiB" in text
    assert "65.0 GiB" in text
    assert "disk / 35%" in history_line(sample_at(NOW, mounts=[tight]))
