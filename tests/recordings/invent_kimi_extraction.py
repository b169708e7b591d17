"""Write `kimi_extraction.jsonl`: eight GPUs in the middle of an extraction. Invented figures: no such host was at hand.

57,344 bytes of hidden states a token are the preset's own arithmetic; rates, temperatures and watts are guesses.
"""

import random
from pathlib import Path

import msgspec

from console.recording.format import LinkUp, Recorded, RecordingEnded, RecordingStarted
from remote.protocol.frames import JobChanged, LogData, ProgressMade, Telemetry
from remote.protocol.jobs import Job, Running
from remote.protocol.progress import (
    ExtractionAdvanced,
    ProgressRecord,
    ServerReady,
    StageChanged,
    StageDone,
    StageRunning,
)
from remote.protocol.requests import JobList, Package, Welcome
from remote.protocol.telemetry import (
    Diagnosis,
    EngineSample,
    GpuEvent,
    GpuHealth,
    GpuPath,
    GpuProcess,
    GpuSample,
    GpuTopology,
    HostSample,
    JobSample,
    MountSample,
    TelemetrySample,
)

START = 1_796_000_000.0
EVERY_S = 5.0
READINGS = 60
TOKENS_PER_S = 2900.0
BYTES_PER_TOKEN = 57_344
SAMPLES, TOKENS = 10_000, 9_870_000
GIB = 1 << 30
TOTAL_BYTES = 3600 * GIB
RUN = "run-kimi-k2-5-261129-150640-7c1e"
ROOT = "/workspace/.roost"

XID_AT = 200.0
XID = GpuEvent(at=START + XID_AT, gpu_index=6, xid=63, text="row remapping recorded", source="nvml")

chance = random.Random(5)


def health(index: int, at: float) -> GpuHealth:
    return GpuHealth(
        sampled_at=START + at - at % 10,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=8 if index == 2 else 16,
        pcie_width_max=16,
        pcie_replays=0,
        ecc_corrected=3 if index == 6 else 0,
        ecc_uncorrected=0,
        remapped_rows_corrected=0,
        remapped_rows_uncorrected=1 if index == 6 else 0,
        remapping_pending=index == 6 and at >= XID_AT,
        remapping_failed=False,
        recovery_action="reset" if index == 6 and at >= XID_AT else "none",
        nvlinks_active=0,
        processes=[GpuProcess(pid=8200 + index, memory_bytes=(85 + index % 2) * GIB)],
    )


def gpu(index: int, at: float) -> GpuSample:
    capped = index == 4
    return GpuSample(
        gpu_index=index,
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        uuid=f"GPU-0000000{index}",
        gpu_utilization=round(min(1.0, max(0.0, chance.gauss(0.93, 0.05))), 3),
        memory_used_bytes=int((86 + index % 2) * GIB),
        memory_total_bytes=int(95.6 * GIB),
        power_watts=round(chance.gauss(592 if capped else 505, 12)),
        power_limit_watts=600.0,
        temperature_celsius=round(chance.gauss(83 if capped else 66 + index, 0.6)),
        sm_clock_hz=2.1e9,
        throttle_reasons=["power_cap"] if capped else [],
        owner_job_id=f"{RUN}-server",
        sampled_at=START + at,
        memory_utilization=round(min(1.0, max(0.0, chance.gauss(0.44, 0.04))), 3),
        temperature_margin_celsius=7.0 if capped else 24.0 - index,
        memory_clock_hz=1.4e10,
        energy_joules=4.1e8 + 500 * at,
        pcie_rx_bytes_per_s=round(chance.gauss(2.2e8, 1e7)),
        pcie_tx_bytes_per_s=round(chance.gauss(3.1e8, 1e7)),
        health=health(index, at),
    )


def diagnoses(at: float) -> list[Diagnosis]:
    capped = Diagnosis(
        code="throttled",
        severity="warning",
        subject="GPU 4",
        since=START - 240,
        summary="GPU 4 is held back: power cap",
        evidence="592 W of 600 W, 83 °C, for 8:55",
        advice="Look at the cooling of this slot; the other seven run below their limit.",
        job_id=f"{RUN}-server",
    )
    if at < XID_AT:
        return [capped]
    hurt = Diagnosis(
        code="hardware",
        severity="error",
        subject="GPU 6",
        since=START + XID_AT,
        summary="GPU 6 reported XID 63 (row remapping)",
        evidence="1 row remapped after uncorrectable errors, remapping pending, the driver advises: reset",
        advice="Let the run end, then reset the device; replace it if this comes again.",
        job_id=f"{RUN}-server",
    )
    return [hurt, capped]


def topology() -> GpuTopology:
    pairs = [(first, second) for first in range(8) for second in range(first + 1, 8)]
    return GpuTopology(
        driver_version="580.95.05",
        cuda_version="13.0",
        paths=[
            GpuPath(
                first=first,
                second=second,
                ancestor="host bridge" if first // 4 == second // 4 else "system",
                peer_to_peer="ok" if first // 4 == second // 4 else "chipset not supported",
            )
            for first, second in pairs
        ],
        events_from="NVML and the kernel log",
    )


def job_samples(tokens: int) -> list[JobSample]:
    server = JobSample(
        job_id=f"{RUN}-server",
        agent="server",
        run_id=RUN,
        process_count=10,
        cpu_utilization=8.9,
        memory_bytes=160 * GIB,
        activity="serve",
    )
    extraction = JobSample(
        job_id=f"{RUN}-extraction",
        agent="extraction",
        run_id=RUN,
        process_count=2,
        cpu_utilization=1.4,
        memory_bytes=3 * GIB,
        activity="extract",
        progress_age_s=0.6,
        progress_period_s=1.0,
        samples_per_s=TOKENS_PER_S * SAMPLES / TOKENS,
        tokens_per_s=TOKENS_PER_S,
        bytes_per_s=TOKENS_PER_S * BYTES_PER_TOKEN,
        writes_to="/workspace",
        bytes_left=(TOKENS - tokens) * BYTES_PER_TOKEN,
        seconds_left=(TOKENS - tokens) / TOKENS_PER_S,
    )
    return [server, extraction]


def reading(at: float, tokens: int) -> TelemetrySample:
    used = 2090 * GIB + tokens * BYTES_PER_TOKEN
    return TelemetrySample(
        sampled_at=START + at,
        host=HostSample(
            cpu_utilization=[round(min(1.0, abs(chance.gauss(0.12, 0.08))), 2) for _ in range(64)],
            cpu_model="AMD EPYC 9575F",
            load_1m=11.4,
            memory_used_bytes=212 * GIB,
            memory_total_bytes=1511 * GIB,
            shm_used_bytes=38 * GIB,
            shm_total_bytes=756 * GIB,
            network_rx_bytes_per_s=2.1e4,
            network_tx_bytes_per_s=6.4e4,
            disk_read_bytes_per_s=1.1e6,
            disk_write_bytes_per_s=TOKENS_PER_S * BYTES_PER_TOKEN,
        ),
        gpu_source="nvml",
        gpu_detail="driver 580.95",
        gpus=[gpu(index, at) for index in range(8)],
        mounts=[
            MountSample(
                path="/workspace",
                used_bytes=used,
                total_bytes=TOTAL_BYTES,
                free_bytes=TOTAL_BYTES - used,
                free_inodes=10_000_000,
                total_inodes=12_000_000,
                fill_rate_bytes_per_s=TOKENS_PER_S * BYTES_PER_TOKEN,
            ),
            MountSample(
                path="/",
                used_bytes=61 * GIB,
                total_bytes=200 * GIB,
                free_bytes=139 * GIB,
                free_inodes=10_000_000,
                fill_rate_bytes_per_s=0.0,
            ),
        ],
        engines=[
            EngineSample(
                job_id=f"{RUN}-server",
                engine="sglang",
                running_requests=16,
                queued_requests=0,
                prefill_tokens_per_s=round(chance.gauss(TOKENS_PER_S, 60)),
                decode_tokens_per_s=round(chance.gauss(16, 1)),
                cache_usage=0.31,
                acceptance_length=None,
            )
        ],
        jobs=job_samples(tokens),
        gpu_events=[XID] if at == XID_AT else [],
        diagnoses=diagnoses(at),
        period_s=EVERY_S,
    )


class Invention:
    """Collects records; numbers progress and places log bytes."""

    def __init__(self) -> None:
        self.records: list[Recorded] = []
        self._seq: dict[str, int] = {}
        self._log: dict[str, int] = {}

    def add(self, at: float, what) -> None:
        self.records.append(Recorded(at=at, what=what))

    def tell(self, at: float, job_id: str, event) -> ProgressRecord:
        seq = self._seq[job_id] = self._seq.get(job_id, 0) + 1
        record = ProgressRecord(seq=seq, at=START + at, event=event)
        self.add(at, ProgressMade(job_id=job_id, record=record))
        return record

    def log(self, at: float, job_id: str, line: str) -> int:
        data = line.encode() + b"\n"
        offset = self._log.get(job_id, 0)
        self.add(at, LogData(job_id=job_id, offset=offset, data=data))
        self._log[job_id] = offset + len(data)
        return self._log[job_id]


def job(agent: str, created_at: float, pid: int, **more) -> Job:
    name = RUN if agent == "run" else f"{RUN}-{agent}"
    module = "remote.pipeline.runner" if agent == "run" else f"remote.agents.{agent}.worker"
    return Job(
        job_id=name,
        agent=agent,
        state=Running(since=created_at, pid=pid),
        revision=1,
        created_at=created_at,
        created_by="screen" if agent == "run" else RUN,
        command=["/workspace/engine/bin/python", "-m", module],
        run_id=None if agent == "run" else RUN,
        **more,
    )


def invent() -> list[Recorded]:
    begun, ready, extracting = START - 1931, START - 1890, START - 1420
    jobs = [job("run", begun, 8001), job("server", ready, 8120), job("extraction", extracting, 9977)]
    story = Invention()
    story.add(0.0, RecordingStarted(host="rtx-lab", began_at=START))
    story.add(0.0, JobList(jobs=jobs))
    packages = [Package(name="torch", version="2.13.0"), Package(name="sglang", version="0.5.23")]
    welcome = Welcome(
        protocol=1,
        release="5d" * 32,
        host_name="rtx-lab",
        user="ann",
        root=ROOT,
        python="/workspace/engine/bin/python",
        python_version="3.11.9",
        incarnation="boot:4026531836:1",
        boot_at=START - 86_400,
        packages=packages,
    )
    story.add(0.0, topology())
    story.add(0.0, LinkUp(latency_s=0.041, welcome=welcome))
    preflight = StageDone(started_at=begun, ended_at=begun + 41, detail="needs about 527.1 GiB of 1509.8 GiB free")
    story.tell(0.0, RUN, StageChanged(stage="preflight", state=preflight))
    serving = StageDone(started_at=ready, ended_at=ready + 470, detail="ready after 7:50")
    story.tell(0.0, RUN, StageChanged(stage="server", state=serving))
    answered = ServerReady(
        url="http://127.0.0.1:30000",
        engine="sglang",
        engine_version="0.5.23",
        model=f"{ROOT}/models/Kimi-K2.5",
        pid=8121,
        startup_s=470.0,
    )
    jobs[1] = msgspec.structs.replace(jobs[1], last_progress=story.tell(0.0, jobs[1].job_id, answered))
    story.add(0.0, JobChanged(job=jobs[1]))
    for number in range(READINGS):
        advance(story, jobs[2], extracting, number * EVERY_S)
    story.add((READINGS - 1) * EVERY_S, RecordingEnded(reason="interrupted"))
    return story.records


def advance(story: Invention, extraction: Job, since: float, at: float) -> None:
    tokens = int((START + at - since) * TOKENS_PER_S)
    samples = SAMPLES * tokens // TOKENS
    left = (TOKENS - tokens) / TOKENS_PER_S
    detail = f"{samples:,} of {SAMPLES:,} samples, {tokens:,} tokens, {TOKENS_PER_S:.0f} tok/s"
    running = StageRunning(since=since, job_id=extraction.job_id, fraction=tokens / TOKENS, eta_s=left, detail=detail)
    story.add(at, Telemetry(sample=reading(at, tokens)))
    story.tell(at, RUN, StageChanged(stage="extraction", state=running))
    done = ExtractionAdvanced(
        samples_done=samples,
        samples_total=SAMPLES,
        tokens_done=tokens,
        bytes_written=tokens * BYTES_PER_TOKEN,
        tokens_per_s=TOKENS_PER_S,
    )
    record = story.tell(at, extraction.job_id, done)
    line = f"shard {tokens // 37_000:05d}: {samples} samples, {tokens * BYTES_PER_TOKEN / GIB:.1f} GiB in the store"
    size = story.log(at, extraction.job_id, line)
    changed = msgspec.structs.replace(extraction, last_progress=record, last_line=line, log_size=size)
    story.add(at, JobChanged(job=changed))


if __name__ == "__main__":
    lines = [msgspec.json.encode(record) for record in invent()]
    Path(__file__).with_name("kimi_extraction.jsonl").write_bytes(b"\n".join(lines) + b"\n")
