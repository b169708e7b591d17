"""Samples of a host with eight devices, and days of them, for the tests of the diagnoses."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from remote.protocol.telemetry import (
    Diagnosis,
    EngineSample,
    GpuHealth,
    GpuSample,
    HostSample,
    JobSample,
    MountSample,
    RankSample,
    TelemetrySample,
)
from remote.telemetry.diagnosis import Diagnostician

START = 1_796_000_000.0
JOB = "run-a-training"
GIB = 1 << 30

HOST = HostSample(
    cpu_utilization=[0.1, 0.2],
    cpu_model="a processor",
    load_1m=1.0,
    memory_used_bytes=1,
    memory_total_bytes=2,
    shm_used_bytes=None,
    shm_total_bytes=None,
    network_rx_bytes_per_s=None,
    network_tx_bytes_per_s=None,
    disk_read_bytes_per_s=None,
    disk_write_bytes_per_s=None,
)


def gpu(index: int, **changes: Any) -> GpuSample:
    """A device of a job at full work."""
    sample = GpuSample(
        gpu_index=index,
        name="NVIDIA RTX PRO 6000",
        uuid=f"GPU-{index}",
        gpu_utilization=0.97,
        memory_used_bytes=80 * GIB,
        memory_total_bytes=96 * GIB,
        power_watts=520.0,
        power_limit_watts=600.0,
        temperature_celsius=70.0,
        sm_clock_hz=2.1e9,
        throttle_reasons=[],
        owner_job_id=JOB,
        memory_utilization=0.5,
        temperature_margin_celsius=20.0,
    )
    return replace(sample, **changes)


IDLE = {"gpu_utilization": 0.0, "memory_utilization": 0.0, "power_watts": 80.0}
SPIN = {"gpu_utilization": 1.0, "memory_utilization": 0.01, "power_watts": 190.0}


def gpus(changed: dict[int, dict[str, Any]] | None = None, **all_of_them: Any) -> list[GpuSample]:
    """Eight devices at work, some of them changed."""
    return [gpu(index, **all_of_them | (changed or {}).get(index, {})) for index in range(8)]


def health(at: float, **changes: Any) -> GpuHealth:
    """A sound device's slow set."""
    sound = GpuHealth(
        sampled_at=at,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        pcie_replays=3,
        ecc_corrected=2,
        ecc_uncorrected=0,
        remapping_pending=False,
        remapping_failed=False,
        recovery_action="none",
    )
    return replace(sound, **changes)


def ranks(changed: dict[int, dict[str, Any]] | None = None) -> list[RankSample]:
    """Eight ranks that each keep a core busy."""
    return [
        replace(
            RankSample(rank=rank, pid=8000 + rank, state="R", cpu_utilization=1.0, gpu_index=rank),
            **(changed or {}).get(rank, {}),
        )
        for rank in range(8)
    ]


def job(job_id: str = JOB, **changes: Any) -> JobSample:
    """A training that makes a step every two seconds."""
    sample = JobSample(
        job_id=job_id,
        agent="training",
        run_id="run-a",
        process_count=9,
        cpu_utilization=8.2,
        memory_bytes=GIB,
        activity="step",
        progress_age_s=1.0,
        progress_period_s=2.0,
        loss=2.5,
        loss_is_finite=True,
    )
    return replace(sample, **changes)


def server(**changes: Any) -> JobSample:
    """The job of a server that serves."""
    quiet = {"progress_age_s": 4000.0, "progress_period_s": None, "loss": None, "loss_is_finite": None}
    return job(**{"job_id": JOB, "agent": "server", "activity": "serve", **quiet, **changes})


def engine(**changes: Any) -> EngineSample:
    """A server that generates with a good drafter."""
    sample = EngineSample(
        job_id=JOB,
        engine="sglang",
        running_requests=8,
        queued_requests=0,
        prefill_tokens_per_s=100.0,
        decode_tokens_per_s=400.0,
        cache_usage=0.3,
        acceptance_length=2.8,
        acceptance_rate=0.6,
    )
    return replace(sample, **changes)


def mount(path: str = "/data", **changes: Any) -> MountSample:
    """A disk with room."""
    sample = MountSample(
        path=path,
        used_bytes=1000 * GIB,
        total_bytes=4000 * GIB,
        free_bytes=3000 * GIB,
        free_inodes=10_000_000,
        fill_rate_bytes_per_s=0.0,
        total_inodes=100_000_000,
    )
    return replace(sample, **changes)


def sample(second: float = 0.0, **changes: Any) -> TelemetrySample:
    """One reading, `second` after the start."""
    whole = TelemetrySample(
        sampled_at=START + second, host=HOST, gpu_source="nvml", gpu_detail="", gpus=[], mounts=[], engines=[]
    )
    return replace(whole, **changes)


class Watch:
    """A diagnostician that is shown a series, and what it said."""

    def __init__(self) -> None:
        self.second = 0.0
        self.told: list[Diagnosis] = []
        self._diagnostician = Diagnostician()

    def show(
        self, seconds: int, make: Callable[[float], dict[str, Any]] | None = None, **fixed: Any
    ) -> list[Diagnosis]:
        """Show a reading a second for so long, of what is `fixed` and what `make` says of each second; what is told at the end."""
        for _ in range(seconds):
            self.second += 1
            self.told = self._diagnostician.advance(
                sample(self.second, **fixed, **({} if make is None else make(self.second)))
            )
        return self.told

    def show_until_told(
        self, code: str, limit: int, make: Callable[[float], dict[str, Any]] | None = None, **fixed: Any
    ) -> float:
        """Show readings until the code is told; how many seconds that took."""
        began = self.second
        for _ in range(limit):
            if code in codes(self.show(1, make, **fixed)):
                return self.second - began
        raise AssertionError(f"no {code} within {limit} s, but {codes(self.told)}")

    def skip(self, seconds: float) -> None:
        """Let time pass without a reading; a negative time sets the clock back."""
        self.second += seconds

    def only(self, code: str) -> Diagnosis:
        """The one diagnosis with this code."""
        (found,) = [one for one in self.told if one.code == code]
        return found


def codes(told: Iterable[Diagnosis]) -> list[str]:
    """The codes of what is told, in its order."""
    return [one.code for one in told]
