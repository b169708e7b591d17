"""Plans that were shown, kept so that one can be carried out exactly as it was shown, or refused because the world changed."""

import contextlib
from pathlib import Path

import msgspec

from remote.artifacts import reserve
from remote.errors import Conflict, NotFound
from remote.jobs.difference import differences, few_words
from remote.pipeline.plan import draw_plan
from remote.protocol.reports import RunPlan, StagePlan
from remote.protocol.run import RunConfig

MOST_PLANS = 100
"""The oldest go first."""


def keep_plan(root: Path, plan: RunPlan) -> None:
    """Keep a plan that can be applied; a disk without room keeps none, for planning changes nothing that matters."""
    if plan.problems:
        return
    directory = root / "plans"
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, exist_ok=True)
        reserve.write_atomic(root, directory / f"{plan.fingerprint}.json", msgspec.json.encode(plan))
        kept = sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[MOST_PLANS:]:
            path.unlink(missing_ok=True)


def read_plan(root: Path, fingerprint: str) -> RunPlan:
    """The plan that was shown under `fingerprint`; raises NotFound."""
    path = root / "plans" / f"{fingerprint}.json"
    try:
        if not fingerprint.isalnum():
            raise FileNotFoundError
        return msgspec.json.decode(path.read_bytes(), type=RunPlan)
    except (OSError, msgspec.DecodeError):
        raise NotFound(
            f"no plan {fingerprint[:80]} is kept on this host",
            hint=f"`roost plan RUN` draws one and says its fingerprint; one with problems is not kept, nor more than {MOST_PLANS}.",
        ) from None


def require_unchanged(root: Path, python: str, run: RunConfig, fingerprint: str) -> None:
    """Raises Conflict, with what changed, unless a plan that is drawn now is the one that was shown; NotFound where none was."""
    shown = read_plan(root, fingerprint)
    if shown.run != run:
        raise Conflict(
            f"the run is not that of the plan: {few_words(differences(shown.run, run))}",
            hint="Plan again, look, then decide.",
        )
    now = draw_plan(run, root=root, python=python)[0]
    if now.fingerprint != fingerprint:
        raise Conflict(
            f"the world changed since the plan was shown: {few_words(what_changed(shown, now))}",
            hint="Nothing was started. Plan again, look, then decide.",
        )


def what_changed(shown: RunPlan, now: RunPlan) -> list[str]:
    """What is different in `now`, in words: the inputs and the software first, then the steps, then what stands in the way."""
    inputs = [
        f"{name} was {shown.facts.get(name, 'not there')}, is {now.facts.get(name, 'not there')}"
        for name in dict.fromkeys([*shown.facts, *now.facts])
        if shown.facts.get(name) != now.facts.get(name)
    ]
    before = {stage.stage: stage for stage in shown.stages}
    steps = [
        f"{stage.stage} was to {before[stage.stage].action}, is to {stage.action} ({stage.reason})"
        for stage in now.stages
        if stage.stage in before
        and (before[stage.stage].action, before[stage.stage].reason) != (stage.action, stage.reason)
    ]
    obstacles = [problem for problem in now.problems if problem not in shown.problems]
    return (
        [*inputs, *steps, *obstacles] or differences(_timeless(shown), _timeless(now)) or ["something of its commands"]
    )


def _timeless(plan: RunPlan) -> list[StagePlan]:
    """The stages without what this host's past says of them, which grows with every run."""
    return [msgspec.structs.replace(stage, seconds=None, seconds_from=None) for stage in plan.stages]
