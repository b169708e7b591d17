"""What each tool takes: one struct a tool, whose JSON Schema is the tool's."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from console import operations
from console.operations_waiting import Until
from remote.protocol.ids import LONGEST_KEY, JobId

Key = Annotated[
    str,
    Meta(
        pattern=rf"^[a-z0-9][a-z0-9-]{{0,{LONGEST_KEY - 1}}}\Z",
        description="A word of your own: the same key is the same job.",
    ),
]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of one host."""

    host: Annotated[str, Meta(description="A name of `list_hosts`.")] = operations.EMBEDDED


class NoArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to say."""

    host: None = None


class OfJob(Arguments, frozen=True, kw_only=True):
    """A job by its id."""

    job_id: JobId


class Waiting(OfJob, frozen=True, kw_only=True):
    """How far and how long to wait."""

    until: Until = "over"
    timeout_s: Annotated[float, Meta(gt=0, le=600, description="Then it is a `timeout`, and the job goes on.")] = 60.0


class LogWanted(OfJob, frozen=True, kw_only=True):
    """Where in a log to read."""

    since: Annotated[int | None, Meta(description="The `next_cursor` of the page before; null: the end.")] = None
    limit: Annotated[int, Meta(ge=1, le=262_144, description="Bytes.")] = 16_384


class JournalWanted(Arguments, frozen=True, kw_only=True):
    """How much of the journal to read."""

    since: Annotated[float | None, Meta(description="Seconds since the epoch.")] = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class RunFile(Arguments, frozen=True, kw_only=True):
    """A run by its file's text."""

    run_file: Annotated[
        str,
        Meta(
            description='The text itself of a run file (TOML), not its path. `preset = "embedded"` alone is the run of the embedded host.'
        ),
    ]
    overrides: Annotated[dict[str, str], Meta(description='Such as {"training.steps": "20"}.')] = {}


class Applying(Arguments, frozen=True, kw_only=True):
    """A plan that was shown."""

    plan: Annotated[str, Meta(description="The fingerprint of `plan_run`.")]


class OfApproval(Arguments, frozen=True, kw_only=True):
    """A request in the host's inbox, and how long to wait for a person."""

    approval_id: Annotated[JobId, Meta(description="As the error of the call said that put it there.")]
    timeout_s: Annotated[float, Meta(gt=0, le=600, description="Then it is a `timeout`, and the request waits on.")] = (
        60.0
    )


class Stopping(OfJob, frozen=True, kw_only=True):
    """A job and the word that it is meant."""

    confirm: Annotated[str | None, Meta(description="The job id again.")] = None
    reason: str = "asked through MCP"
    expected_revision: Annotated[int | None, Meta(description="Refuse when the job changed since this revision.")] = (
        None
    )


class Paths(Arguments, frozen=True, kw_only=True):
    """Directories on the host."""

    paths: Annotated[list[str], Meta(min_length=1, description="Absolute, or below ROOT.")]


class Reclaiming(Paths, frozen=True, kw_only=True):
    """Directories, and the plan that was shown for exactly them."""

    token: Annotated[str, Meta(description="The token of `plan_reclaim` for the same paths.")]


class TrashEntryNamed(Arguments, frozen=True, kw_only=True):
    """An entry of the trash."""

    entry: str


class Purging(Arguments, frozen=True, kw_only=True):
    """Entries of the trash, and the word that they may go for good."""

    entries: Annotated[list[str], Meta(min_length=1, description="Names as `read_storage` says them.")]
    confirm: Annotated[str | None, Meta(description="The host's name.")] = None


def schema_of_arguments(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of what a tool takes, complete in itself and an object at its root."""
    (reference,), definitions = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    root = definitions.pop(reference["$ref"].rpartition("/")[2])
    return {**root, "$defs": definitions} if definitions else root
