"""The loop that every rank of a training runs: the same steps on its own share of the batches."""

from collections.abc import Callable
from pathlib import Path

from remote.agents.training.batches import batches_from
from remote.agents.training.checkpoint import restore
from remote.agents.training.ranks import Ranks
from remote.agents.training.setup import Training, pick_device, prepare
from remote.protocol.progress import StepLogged
from remote.protocol.specs import TrainingSpec


def resume(training: Training, found: Path | None) -> None:
    """Put every rank where the checkpoint `found` by the first one was written, if there is one."""
    checkpoint = training.trainer.ranks.as_the_first(found)
    if checkpoint is not None:
        restore(training.trainer, checkpoint)


def train(training: Training, *, tell: Callable[[StepLogged], None], after_step: Callable[[], bool]) -> None:
    """Train until the steps are done or the first rank's `after_step` returns False."""
    trainer, config = training.trainer, training.trainer.config
    batches = config.batches_per_step
    plan = batches_from(
        training.windows, batch_tokens=config.batch_tokens, seed=config.seed, first=trainer.step * batches
    )
    trainer.run(
        training.reader.read_ahead(trainer.ranks.own(plan, batches)),
        waited_s=lambda: training.reader.waited_s,
        tell=tell,
        after_step=after_step,
    )


def follow(spec: TrainingSpec, ranks: Ranks) -> int:
    """Train as one of the ranks after the first, which tells, saves and decides nothing; the step at which the first one ended."""
    training = prepare(spec, pick_device(spec.training, ranks), ranks)
    resume(training, None)
    train(training, tell=lambda _: None, after_step=lambda: True)
    return training.trainer.step
