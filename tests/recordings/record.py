"""Record a run on the embedded host: `python tests/recordings/record.py PRESET OUT.jsonl`.

Names of the machine it was recorded on are replaced afterwards by names of the same length, so that log offsets stay true.
"""

import asyncio
import getpass
import socket
import sys
import time
from pathlib import Path

import msgspec

from console import operations
from console.state.link import Connecting, Lost, Up
from console.ui.recording import LinkConnecting, LinkLost, LinkUp, Recorded
from remote.protocol.frames import JobChanged, LogData, ProgressMade, Telemetry
from remote.protocol.jobs import is_over
from remote.protocol.requests import JobList

_KEEP_EVERY_S = 1.9
"""Readings come every second; every other one is enough for a picture."""
_JOBS_EVERY_S = 4.0
_LINKS_EVERY_S = 30.0


class Recorder:
    """Writes what happens to `records`, and keeps every job's log and progress watched."""

    def __init__(self, session: operations.Session) -> None:
        self.records: list[Recorded] = []
        self._session = session
        self._began = time.monotonic()
        self._logs: dict[str, int] = {}
        self._progress: dict[str, int] = {}
        self._reading_at = -_KEEP_EVERY_S

    def note(self, what) -> None:
        self.records.append(Recorded(at=round(time.monotonic() - self._began, 3), what=what))

    async def watch_also(self, job_id: str) -> None:
        if job_id not in self._logs:
            self._logs[job_id] = self._progress[job_id] = 0
            await operations.watch(self._session, telemetry=True, logs=self._logs, progress=self._progress)

    async def take(self, event) -> None:
        match event:
            case Up(latency_s=latency, welcome=welcome):
                someone = msgspec.structs.replace(welcome, host_name="laptop", user="ann", incarnation="boot:1:1")
                self.note(LinkUp(latency_s=latency, welcome=someone))
            case Lost(reason=reason, retry_at=retry_at):
                self.note(LinkLost(reason=reason, retry_in_s=retry_at - time.monotonic()))
            case Connecting(attempt=attempt):
                self.note(LinkConnecting(attempt=attempt))
            case Telemetry():
                now = time.monotonic()
                if now - self._reading_at >= _KEEP_EVERY_S:
                    self._reading_at = now
                    self.note(event)
            case JobChanged(job=job):
                # The spec is only shown before a run; in every change it would be most of the file.
                self.note(JobChanged(job=msgspec.structs.replace(job, spec=None)))
                await self.watch_also(job.job_id)
            case ProgressMade(job_id=job_id, record=record):
                self._progress[job_id] = record.seq
                self.note(event)
            case LogData(job_id=job_id, offset=offset, data=data):
                self._logs[job_id] = offset + len(data)
                self.note(event)
            case _:
                pass


async def record(preset: str) -> list[Recorded]:
    async with operations.open_host(operations.EMBEDDED, actor="screen") as session:
        recorder = Recorder(session)
        recorder.note(JobList(jobs=await operations.list_jobs(session)))
        plan = await operations.plan_run(session, operations.run_document(preset))
        recorder.note(plan)
        await operations.watch(session, telemetry=True)
        run = await operations.start_run(session, plan)
        ended = None
        async for event in operations.host_events(session):
            await recorder.take(event)
            if isinstance(event, JobChanged) and event.job.job_id == run.job_id and is_over(event.job.state):
                ended = time.monotonic()
            if ended is not None and time.monotonic() - ended > 5:
                break
        recorder.note(await operations.read_verdict(session, run.job_id))
        return recorder.records


def thinned(records: list[Recorded]) -> list[Recorded]:
    """Without the job changes that only move a job's last line, and the link states that only measure the latency."""
    kept: list[Recorded] = []
    last: dict[str, tuple[float, object]] = {}
    for record in records:
        match record.what:
            case JobChanged(job=job):
                key, every_s, essence = job.job_id, _JOBS_EVERY_S, type(job.state)
            case LinkUp(welcome=welcome):
                key, every_s, essence = "link", _LINKS_EVERY_S, welcome.release
            case LinkLost() | LinkConnecting():
                last.pop("link", None)
                kept.append(record)
                continue
            case _:
                kept.append(record)
                continue
        at, before = last.get(key, (-every_s, None))
        if essence != before or record.at - at >= every_s:
            last[key] = (record.at, essence)
            kept.append(record)
    return kept


def renamed(value, names: dict[str, str]):
    """`value` with every string and byte string in it renamed."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
    elif isinstance(value, bytes):
        for old, new in names.items():
            value = value.replace(old.encode(), new.encode())
    elif isinstance(value, dict):
        value = {key: renamed(item, names) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        value = [renamed(item, names) for item in value]
    return value


def main() -> None:
    preset, out, *pairs = sys.argv[1:]
    names = dict(pair.split("=", 1) for pair in pairs)
    for old, new in names.items():
        assert len(old) == len(new), f"{old} and {new} differ in length"
    records = thinned(asyncio.run(record(preset)))
    lines = []
    for item in records:
        plain = renamed(msgspec.to_builtins(item, builtin_types=(bytes,)), names)
        lines.append(msgspec.json.encode(plain))
    Path(out).write_bytes(b"\n".join(lines) + b"\n")
    sys.stderr.write(f"{len(lines)} records; look for {socket.gethostname()} and {getpass.getuser()} in them\n")


if __name__ == "__main__":
    main()
