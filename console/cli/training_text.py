"""What the verbs of `roost training` say to people."""

from console.cli.server_text import aligned
from console.cli.text import state_words
from console.state.sanitize import one_line
from console.state.training_comparison import TrainingRecord
from console.state.units import UNKNOWN, format_bytes, format_duration, format_loss, format_rate
from remote.protocol.reports import TrainingPlan

_BEGINNINGS = {
    "run": "begins at step 0",
    "resume": "goes on from its newest checkpoint",
    "skip": "is done already: its drafter is there",
}


def training_plan_lines(plan: TrainingPlan) -> list[str]:
    """What a training would read, write and do."""
    spec = plan.spec
    tokens = (
        "" if plan.tokens is None or plan.samples is None else f": {plan.samples:,} samples, {plan.tokens:,} tokens"
    )
    needed = UNKNOWN if plan.bytes_needed is None else format_bytes(plan.bytes_needed)
    return [
        f"training  of {one_line(plan.run)}, {spec.training.steps:,} steps on {spec.training.device}: {_BEGINNINGS[plan.action]}",
        f"target    {one_line(spec.target_model)}",
        f"store     {one_line(spec.store)}{tokens}",
        f"mapping   {one_line(spec.mapping)}",
        f"drafter   {one_line(spec.drafter)}",
        *([f"trackers  {', '.join(spec.training.trackers.use)}"] if spec.training.trackers.use else []),
        f"to write  {needed}; the disk has {format_bytes(plan.bytes_free)}",
        *(f"problem: {one_line(problem)}" for problem in plan.problems),
    ]


def comparison_lines(trainings: list[TrainingRecord]) -> list[str]:
    """A column for each training: how far it is, its figures, and what it was set to where they differ."""
    rows = [
        ("", *(one_line(training.job_id) for training in trainings)),
        ("state", *(one_line(state_words(training.state)) for training in trainings)),
        ("step", *map(_step, trainings)),
        ("loss", *(format_loss(training.last.loss) if training.last else UNKNOWN for training in trainings)),
        ("accuracy", *map(_accuracy, trainings)),
        ("best on validation text", *map(_best, trainings)),
        ("on test text", *map(_tested, trainings)),
        ("tokens/s", *map(_rate, trainings)),
        ("time", *(UNKNOWN if one.seconds is None else format_duration(one.seconds) for one in trainings)),
    ]
    names = list(dict.fromkeys(name for training in trainings for name in training.settings))
    rows += [(name, *(one_line(str(training.settings.get(name))) for training in trainings)) for name in names]
    return aligned(rows)


def _step(training: TrainingRecord) -> str:
    return f"{training.last.step}/{training.last.total_steps}" if training.last else UNKNOWN


def _accuracy(training: TrainingRecord) -> str:
    return " ".join(f"{share:.2f}" for share in training.last.accuracy) if training.last else UNKNOWN


def _best(training: TrainingRecord) -> str:
    found = training.best_validation
    return UNKNOWN if found is None else f"{found.acceptance_length:.3f} at step {found.step}"


def _tested(training: TrainingRecord) -> str:
    length = training.test_acceptance_length
    return UNKNOWN if length is None else f"{length:.3f}"


def _rate(training: TrainingRecord) -> str:
    return format_rate(training.last.tokens_per_s, "tok") if training.last else UNKNOWN
