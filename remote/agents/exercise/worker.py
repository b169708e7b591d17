"""The exercise's work: what a demo host has to do on devices that are only played. It trains a small model on the CPU."""

import os
import random
import time
from pathlib import Path

from remote.agents.exercise.bigrams import Bigrams
from remote.agents.harness import JobContext, main
from remote.errors import Precondition
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Note, StepLogged
from remote.protocol.specs import ExerciseSpec

_BATCH = 64
_LEARNING_RATE = 8.0
_PLAYED = "NVML_STANDIN_SCENARIO"


def work(spec: ExerciseSpec, job: JobContext) -> JobResult:
    """Take a step every `step_s`, to the end of the time even where it stands still; refused on real devices."""
    if _PLAYED not in os.environ:
        raise Precondition(
            "an exercise holds devices that are played, and those of this host are real: they stay free",
            hint="`roost demo --scenario training` makes a host for it",
        )
    model = Bigrams(Path(__file__).read_text(encoding="utf-8"))
    chance = random.Random(0)  # noqa: S311 - which characters come first is no secret
    due = time.monotonic()
    for step in range(1, spec.steps + 1):
        if spec.stands_after is not None and step == spec.stands_after + 1:
            job.tell(
                Note(level="info", text="from here on nothing comes of it, as when a rank waits for one elsewhere")
            )
        due += spec.step_s
        job.stop_requested.wait(max(0.0, due - time.monotonic()))
        job.check_stop()
        if spec.stands_after is None or step <= spec.stands_after:
            places = chance.sample(range(len(model.encoded) - 1), _BATCH)
            learned = model.step(places, _LEARNING_RATE)
            job.tell(
                StepLogged(
                    step=step,
                    total_steps=spec.steps,
                    loss=learned.loss,
                    accuracy=[learned.accuracy],
                    learning_rate=_LEARNING_RATE,
                    gradient_norm=learned.gradient_norm,
                    tokens_per_s=_BATCH / spec.step_s,
                    input_wait_fraction=0.0,
                )
            )
    return JobResult(summary={"steps": spec.steps})


if __name__ == "__main__":
    main(ExerciseSpec, work)
