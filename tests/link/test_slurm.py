"""A host that is an allocation of Slurm, with a real Slurm of one node behind a real SSH server."""

import json
import os
import signal
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from console import operations, operations_allocation
from console.config.hosts import HostConfig, SlurmConfig
from console.errors import ConnectionFailed, ConsoleError
from console.link.engine_http import exchange
from remote.protocol.errors import ErrorCode
from remote.protocol.jobs import Finished, Lost
from remote.protocol.jobs import Running as JobRuns
from remote.protocol.specs import RecorderSpec
from tests.link.command import roost
from tests.link.servers import OpenSSH
from tests.link.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slow

WORK = RecorderSpec(idle_exit_s=3600)


@pytest.fixture
def lab(openssh: OpenSSH, slurm: SlurmCluster, tmp_path: Path) -> HostConfig:
    """The login host of the cluster, configured as `lab`."""
    openssh.restart_with("\n".join(f"SetEnv {name}={value}" for name, value in slurm.environment.items()))
    openssh.remember()
    host = openssh.config(tmp_path / "root with a space")
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "roost/roost.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""[hosts.lab]
address = "127.0.0.1"
port = {host.port}
user = "{host.user}"
identity_file = "{host.identity_file}"
root = "{host.root}"
python = "{sys.executable}"

[hosts.lab.slurm]
partition = "main"
time_limit = "01:00:00"
options = ["--cpus-per-task=1"]
"""
    )
    return msgspec.structs.replace(host, slurm=SlurmConfig())


def document(*words: str) -> dict[str, object]:
    done = roost(*words, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


async def test_jobs_live_in_the_allocation_and_survive_the_links(lab: HostConfig, slurm: SlurmCluster) -> None:
    none = roost("jobs", "--host", "lab")
    assert none.returncode == 3
    assert "roost allocation start" in none.stderr
    shown = roost("allocation", "start", "lab", "--dry-run").stdout
    assert "#SBATCH --dependency=singleton" in shown
    assert "#SBATCH --cpus-per-task=1" in shown

    slurm.hold()
    first = document("allocation", "start", "lab")["allocation"]
    assert first["state"]["type"] == "pending"
    assert document("allocation", "start", "lab")["allocation"]["slurm_job"] == first["slurm_job"]
    late = roost("allocation", "start", "lab", "--wait", "--timeout", "1")
    assert late.returncode == 4
    waiting = roost("jobs", "--host", "lab", "--json")
    assert json.loads(waiting.stdout)["error"]["retryable"]
    slurm.release()
    running = document("allocation", "start", "lab", "--wait")["allocation"]
    assert running["slurm_job"] == first["slurm_job"]
    assert running["state"]["node"] == slurm.node

    async with operations.open_host("lab", actor="test") as session:
        job = await operations.start_job(session, "watching", WORK)
        assert isinstance((await operations.get_job(session, job.job_id)).state, JobRuns)
    heartbeat = Path(lab.root) / "jobs" / job.job_id / "heartbeat"
    hung_up_at = heartbeat.stat().st_mtime
    slurm.until(lambda: heartbeat.stat().st_mtime > hung_up_at + 2)
    assert job.job_id in roost("jobs", "--host", "lab").stdout

    refused = roost("allocation", "end", "lab", "--no-input", "--json")
    assert refused.returncode == 6
    assert job.job_id in refused.stdout
    assert roost("allocation", "end", "lab", "--confirm", "lab").returncode == 0
    slurm.until(lambda: not slurm.ask("squeue", "--noheader").strip())
    assert json.loads((Path(lab.root) / "jobs" / job.job_id / "exit.json").read_bytes())["outcome"] == "stopped"

    document("allocation", "start", "lab", "--wait")
    async with operations.open_host("lab", actor="test") as session:
        assert isinstance((await operations.get_job(session, job.job_id)).state, Finished)
        entries = (await operations.read_journal(session)).entries
    assert [entry.outcome for entry in entries if entry.action == "allocate"] == ["unknown", "done"]


async def test_a_port_of_the_node_is_reached_through_the_allocation(lab: HostConfig) -> None:
    await operations_allocation.start_allocation(await operations_allocation.plan_allocation("lab", actor="test"))
    await operations_allocation.wait_for_allocation("lab", timeout_s=60)
    body = os.urandom(1 << 20)
    (Path(lab.root) / "served").mkdir(exist_ok=True)
    (Path(lab.root) / "served/file").write_bytes(body)
    handler = partial(SimpleHTTPRequestHandler, directory=str(Path(lab.root) / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with operations.open_host("lab", actor="test") as session:
            reply = await exchange(
                await session.open_port(server.server_port), "node", "/file", body=None, timeout_s=60
            )
            assert (reply.status, reply.body) == (200, body)
            with pytest.raises(ConnectionFailed):
                await exchange(await session.open_port(1), "node", "/file", body=None, timeout_s=60)
        server.shutdown()


async def test_what_dies_with_its_node_is_lost_and_the_next_allocation_says_so(
    lab: HostConfig, slurm: SlurmCluster
) -> None:
    document("allocation", "start", "lab", "--wait")
    async with operations.open_host("lab", actor="test") as session:
        job = await operations.start_job(session, "watching", WORK)
    number = document("allocation", "show", "lab")["allocation"]["slurm_job"]
    # Where Slurm tracks processes by cgroup the end of the keeper takes these with it; this one's tracks them by parentage.
    started = json.loads((Path(lab.root) / "jobs" / job.job_id / "started.json").read_bytes())
    for pid in (started["supervisor_pid"], started["pid"]):
        os.kill(pid, signal.SIGKILL)
    slurm.ask("scancel", "--batch", "--signal=KILL", str(number))
    slurm.until(lambda: not slurm.ask("squeue", "--noheader").strip())
    document("allocation", "start", "lab", "--wait")
    async with operations.open_host("lab", actor="test") as session:
        assert isinstance((await operations.get_job(session, job.job_id)).state, Lost)


async def test_what_slurm_refuses_is_said_in_its_words(lab: HostConfig) -> None:
    plan = await operations_allocation.plan_allocation("lab", actor="test")
    wrong = msgspec.structs.replace(plan, script=plan.script.replace("--partition=main", "--partition=nowhere"))
    with pytest.raises(ConsoleError, match="invalid partition") as caught:
        await operations_allocation.start_allocation(wrong)
    assert caught.value.info.code is ErrorCode.FAILED
    assert await operations_allocation.read_allocation("lab") is None
