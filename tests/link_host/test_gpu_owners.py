"""Whose a device is: what the leases say, on the wire."""

from remote.protocol.jobs import Finished
from remote.protocol.requests import GetJob, ReadTelemetry

SLEEP = "import time; time.sleep(600)"


def owners(console) -> list[str | None]:
    return [gpu.owner_job_id for gpu in console.ask(ReadTelemetry()).gpus]


def test_a_device_belongs_to_its_job_until_the_job_is_over(gpu_shop, open_console):
    gpu_shop.start_on("server", SLEEP, 3)
    gpu_shop.start_on("trainer", SLEEP, 1)
    console = open_console()
    console.greet()
    assert owners(console) == ["server"] * 3 + ["trainer"] + [None] * 4
    gpu_shop.stop("server")
    gpu_shop.until("server", lambda job: isinstance(job.state, Finished))
    assert owners(console) == [None] * 3 + ["trainer"] + [None] * 4
    assert console.ask(GetJob(job_id="server")).job.gpus == [0, 1, 2]


def test_what_a_process_on_the_device_calls_itself_makes_no_owner(gpu_shop, open_console):
    """In a container the driver's pids may be those of the host."""
    pid = gpu_shop.start_on("server", SLEEP, 1).state.pid
    gpu_shop.nvml.change({"gpu6.processes": f"{pid}:1000"})
    console = open_console()
    console.greet()
    assert owners(console) == ["server"] + [None] * 7
