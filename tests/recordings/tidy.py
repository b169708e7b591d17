"""Make a recording fit to be kept here: `python tests/recordings/tidy.py IN OUT.jsonl [NAME=OTHER]...`.

Names of the machine it was recorded on become names of the same length, so that log offsets stay true; every other reading
is enough for a picture, and of a job's changes those that only move its last line can go.
"""

import sys
from pathlib import Path

import msgspec

from console.recording.format import LinkUp, Recorded
from console.recording.reader import read_recording
from remote.protocol.frames import JobChanged, Telemetry

_READINGS_EVERY_S = 1.9
_JOBS_EVERY_S = 4.0


def thinned(records: list[Recorded]) -> list[Recorded]:
    kept: list[Recorded] = []
    last: dict[str, tuple[float, object]] = {}
    for record in records:
        match record.what:
            case JobChanged(job=job):
                key, every_s, essence = job.job_id, _JOBS_EVERY_S, type(job.state)
            case Telemetry():
                key, every_s, essence = "reading", _READINGS_EVERY_S, None
            case _:
                kept.append(record)
                continue
        at, before = last.get(key, (-every_s, None))
        if essence != before or record.at - at >= every_s:
            last[key] = (record.at, essence)
            kept.append(record)
    return kept


def nobody(record: Recorded) -> Recorded:
    match record.what:
        case LinkUp(welcome=welcome) as up:
            someone = msgspec.structs.replace(welcome, host_name="laptop", user="ann", incarnation="boot:1:1")
            return msgspec.structs.replace(record, what=msgspec.structs.replace(up, welcome=someone))
        case _:
            return record


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
    source, out, *pairs = sys.argv[1:]
    names = dict(pair.split("=", 1) for pair in pairs)
    for old, new in names.items():
        assert len(old) == len(new), f"{old} and {new} differ in length"
    records = [nobody(record) for record in thinned(read_recording(Path(source)))]
    lines = [
        msgspec.json.encode(renamed(msgspec.to_builtins(record, builtin_types=(bytes,)), names)) for record in records
    ]
    Path(out).write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    main()
