"""What runs on the host by hand or over SSH: `python -m remote link | send | receive | keep | ready | jobs | version`."""

import argparse
import json
import os
import platform
import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec

from remote.bulk.ends import VERBS, run_end
from remote.errors import RoostError
from remote.jobs.journal import Change
from remote.jobs.keeper import Keeper
from remote.jobs.spawn import start_detached
from remote.jobs.store import JobStore
from remote.link.releases import use_release
from remote.link.server import run_link
from remote.protocol.codec import READY_MARKER
from remote.protocol.version import PROTOCOL_VERSION


def main(arguments: list[str] | None = None) -> int:
    """Carry out one verb; the process's exit code."""
    options = _parser().parse_args(arguments)
    if options.verb == "version":
        _write({"protocol": PROTOCOL_VERSION, "python": platform.python_version()})
        return 0
    if options.verb == "ready":
        sys.stdout.buffer.write(READY_MARKER + b"\n")
        return 0
    try:
        store = JobStore(options.root, Path(__file__).resolve().parents[1], sys.executable)
        if options.verb in VERBS:
            change = Change(actor=options.actor, action="receive", subject=options.path)
            recording = store.journal.recording(change) if options.verb == "receive" else nullcontext()
            with use_release(store):
                return run_end(options.verb, options.root, options.path, announce=True, recording=recording)
        if options.verb == "link":
            run_link(store, options.actor)
        elif options.verb == "keep":
            change = Change(actor=options.actor, action="allocate", subject=os.environ.get("SLURM_JOB_ID", "by hand"))
            with use_release(store), store.journal.recording(change):
                Keeper(options.root, start_detached).run()
        else:
            jobs = msgspec.json.encode(store.list())
            sys.stdout.write(store.secrets.redactor().redact_json(jobs).decode() + "\n")
    except (RoostError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m remote", description="The host side of Roost.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("version", help="the protocol that this release speaks, as JSON")
    rooted = argparse.ArgumentParser(add_help=False)
    rooted.add_argument("--root", type=Path, required=True, help="Roost's directory on this host")
    rooted.add_argument("--actor", default="unknown", help="who asks; of a link, until the console says so itself")
    verbs.add_parser("jobs", parents=[rooted], help="all jobs, newest first, as JSON")
    verbs.add_parser("link", parents=[rooted], help="serve one console on standard input and output")
    verbs.add_parser(
        "keep", parents=[rooted], help="start supervisors for the links of a batch allocation, until SIGTERM"
    )
    verbs.add_parser("ready", parents=[rooted], help="say that this release runs here, and end")
    for verb, what in (("send", "an artifact to the console"), ("receive", "an artifact from the console")):
        end = verbs.add_parser(verb, parents=[rooted], help=f"{verb} {what}, on standard input and output")
        end.add_argument("path", help="the artifact's directory, absolute or below the root")
    return parser


def _write(document: object) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
