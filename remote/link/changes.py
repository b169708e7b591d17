"""Which requests change something on the host, and how the journal describes them (pure)."""

from collections.abc import Callable

import msgspec

from remote.jobs.journal import Change
from remote.protocol.approvals import AskApproval, DecideApproval, RecordRefusal
from remote.protocol.notifications import TryWebhook
from remote.protocol.requests import Request, StartJob, StopJob
from remote.protocol.run import RunConfig
from remote.protocol.secrets import RemoveSecret, SetSecret
from remote.protocol.specs import RunSpec, Spec
from remote.protocol.storage import MoveToTrash, RestoreFromTrash


def describe_change(  # noqa: C901, PLR0911 - one for each request that changes something
    request: Request, actor: str, cover: Callable[[str], str]
) -> Change | None:
    """What the journal says of `request`, its texts covered by `cover`; None for one that only asks."""
    actor = cover(actor)
    match request:
        case StartJob(job_id=job_id, spec=spec, op_id=op_id):
            plan = spec.plan if isinstance(spec, RunSpec) else None
            return Change(
                actor=actor, action="start", subject=job_id, summary=cover(_spec_words(spec)), plan=plan, op_id=op_id
            )
        case StopJob(job_id=job_id, op_id=op_id, reason=reason):
            return Change(actor=actor, action="stop", subject=job_id, summary=cover(reason), op_id=op_id)
        case SetSecret(name=name, op_id=op_id):
            return Change(actor=actor, action="set_secret", subject=name, op_id=op_id)
        case RemoveSecret(name=name, op_id=op_id):
            return Change(actor=actor, action="remove_secret", subject=name, op_id=op_id)
        case TryWebhook(op_id=op_id):
            return Change(actor=actor, action="try_webhook", subject="webhook", op_id=op_id)
        case MoveToTrash(paths=paths, token=token, op_id=op_id):
            return Change(actor=actor, action="reclaim", subject=cover(", ".join(paths)), plan=token, op_id=op_id)
        case RestoreFromTrash(name=name, op_id=op_id):
            return Change(actor=actor, action="restore", subject=name, op_id=op_id)
        case AskApproval(request=asked):
            change = describe_change(asked, actor, cover)
            assert change is not None, "only changes can be asked for"
            words = f"{change.action.replace('_', ' ')} {change.subject} {change.summary}".strip()
            return Change(actor=actor, action="ask", subject=change.subject, summary=words, plan=change.plan)
        case DecideApproval(approval_id=approval_id, fingerprint=fingerprint, approve=approve, note=note):
            verb = "approve" if approve else "refuse"
            return Change(
                actor=actor,
                action=verb,
                subject=approval_id,
                summary=cover(note),
                plan=fingerprint,
                approval=approval_id,
            )
        case RecordRefusal(tool=tool, summary=summary):
            return Change(actor=actor, action="tool", subject=tool, summary=cover(summary))
        case _:
            return None


def _spec_words(spec: Spec) -> str:
    """The kind of work and what it is about: its plain settings, of a run its name and its target."""
    kind = str(type(spec).__struct_config__.tag).removesuffix("_spec").replace("_", " ")
    run = getattr(spec, "run", None)
    if isinstance(run, RunConfig):
        return f"{kind} {run.name} of {run.target.model}"
    settings = msgspec.to_builtins(spec)
    plain = [f"{key} {_words(value)}" for key, value in settings.items() if key != "type" and _is_plain(value)]
    return f"{kind}: {', '.join(plain)}" if plain else kind


def _is_plain(value: object) -> bool:
    return (isinstance(value, (str, int, float)) and value is not False) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)
    )


def _words(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else "yes" if value is True else str(value)
