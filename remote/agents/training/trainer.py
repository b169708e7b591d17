"""The training loop: float32 masters, compute in bfloat16 where the processor multiplies it, in step on every rank."""

import math
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from remote.agents.training.batches import Window
from remote.agents.training.model import Drafter
from remote.agents.training.not_finite import first_not_finite, samples_not_finite, save_batches
from remote.agents.training.objective import Batch, LossOptions, Targets, Teacher, denominators, unroll
from remote.agents.training.optimizers import optimizers
from remote.agents.training.ranks import Ranks
from remote.agents.training.schedule import learning_rate
from remote.agents.training.sharding import expect_backward, joined, whole
from remote.errors import WorkFailed
from remote.protocol.progress import StepLogged
from remote.protocol.run import TrainingConfig


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is the faster way to multiply there: every CUDA device of today, and processors with AMX."""
    return device.type == "cuda" or bool(torch.cpu.get_capabilities().get("amx_bf16", False))


def initialise(drafter: Drafter, *, embedding: Tensor, draft_head: Tensor, seed: int) -> None:
    """Start `drafter` from the target: its embedding (frozen) and its head's rows of the draft vocabulary.

    The final norm starts at one: with the target's own scale the first logits are so sharp that early steps are wasted.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in drafter.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.02, generator=generator)
        drafter.lm_head.weight.copy_(draft_head)
    drafter.embedding = embedding


def expected_length(accuracy: list[float]) -> float:
    """Tokens a verification when each draft position is right as often as it says, the bonus token included."""
    length, kept = 1.0, 1.0
    for share in accuracy:
        kept *= share
        length += kept
    return length


def peak_memory_bytes(device: torch.device) -> int:
    """The most that was in use at a time so far: of a GPU what torch had allocated, else what was resident of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@dataclass(frozen=True)
class StepTotals:
    """One optimizer step over all ranks: its loss, and at each draft position its part of that and how many of the masked positions
    were right.

    What the drafter cannot say counts as wrong. `gradient_norm` is that before clipping.
    """

    loss: float
    losses: list[float]
    right: list[float]
    masked: list[float]
    tokens: int
    gradient_norm: float


@dataclass
class Tally:
    """The steps since the last log line."""

    started: float
    steps: list[StepTotals] = field(default_factory=list)

    @property
    def loss(self) -> float:
        """The mean of the steps' losses."""
        return sum(step.loss for step in self.steps) / len(self.steps)

    @property
    def tokens(self) -> int:
        """Tokens read by all ranks."""
        return sum(step.tokens for step in self.steps)

    def losses(self) -> list[float]:
        """The mean loss of each draft position, not weighted."""
        return [sum(losses) / len(self.steps) for losses in zip(*(step.losses for step in self.steps), strict=True)]

    def accuracy(self) -> list[float]:
        """Share of the masked positions that each draft position got right."""
        right = map(sum, zip(*(step.right for step in self.steps), strict=True))
        masked = map(sum, zip(*(step.masked for step in self.steps), strict=True))
        return [of / max(all_of, 1) for of, all_of in zip(right, masked, strict=True)]


class LossNotFinite(WorkFailed):
    """A step whose loss or gradient is NaN or infinite; nothing was learned from it."""


class Trainer:
    """A drafter, its optimizers and its teacher on one of the `ranks`.

    `step` counts the optimizer steps done, `tokens` what all ranks read for them. A step that is not finite leaves its batches in
    `failures`.
    """

    def __init__(
        self,
        drafter: Drafter,
        teacher: Teacher,
        draft_ids: Tensor,
        config: TrainingConfig,
        ranks: Ranks = Ranks(),  # noqa: B008 - it has no state
        *,
        failures: Path = Path(),
    ) -> None:
        self.drafter = drafter
        self.teacher = teacher
        self.draft_ids = draft_ids
        self.config = config
        self.ranks = ranks
        self.failures = failures
        self.options = LossOptions()
        self.device = draft_ids.device
        self.sharded = isinstance(drafter, FSDPModule)
        self.autocast = multiplies_bfloat16(self.device)
        self.step = 0
        self.tokens = 0
        self.optimizers = optimizers(drafter, config)
        self._choices: dict[Window, Tensor] = {}

    def precision(self) -> torch.autocast:
        """The context that the drafter computes in."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast)

    def _with_choices(self, windows: list[Window], batch: Batch) -> Batch:
        """`batch` with the target's choices, computed the first time that each window is met (they never change)."""
        placed = list(zip(windows, batch.places([window.length for window in windows]), strict=True))
        new = torch.zeros_like(batch.loss_mask)
        for window, place in placed:
            new[place] = window not in self._choices
        new &= batch.loss_mask
        choices = torch.zeros_like(batch.input_ids)
        choices[new] = self.teacher.argmax(batch.final[new])
        for window, place in placed:
            if window in self._choices:
                choices[place] = self._choices[window].to(self.device)
            else:
                self._choices[window] = choices[place].to("cpu", torch.int32)
        return replace(batch, argmax=choices)

    def train_on(self, batches: list[tuple[list[Window], Batch]]) -> StepTotals:
        """One optimizer step on this rank's `batches` and those of the other ranks.

        Raises LossNotFinite; the weights are then those before the step.
        """
        config = self.config
        learned = [self._with_targets(windows, batch) for windows, batch in batches]
        counted = [
            sum(len(targets.counted(step, self.options)) for _, targets in learned) for step in range(config.ttt_length)
        ]
        positions = sum(batch.input_ids.numel() for batch, _ in learned)
        tokens = sum(window.length for windows, _ in batches for window in windows)
        # What the losses are divided by is known before the first of them, so that shares of a step add up to the whole.
        *counted, positions, tokens = self.ranks.add(torch.tensor([*counted, positions, tokens])).tolist()
        parts = denominators(counted, positions, self.options)
        told = torch.zeros(1 + 3 * config.ttt_length, dtype=torch.float64)
        for number, (batch, targets) in enumerate(learned, 1):
            expect_backward(self.drafter, last=number == len(learned))
            told += self._learn(batch, targets, parts)
        if not self.sharded:
            self.ranks.add_gradients(self.drafter.parameters())
        loss, *outcomes = self.ranks.add(told).tolist()
        parameters = [parameter for parameter in self.drafter.parameters() if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = joined(torch.nn.utils.get_total_norm(gradients))
        if not (math.isfinite(loss) and bool(norm.isfinite())):
            raise self._not_finite(batches, loss, float(norm))
        torch.nn.utils.clip_grads_with_norm_(parameters, config.gradient_clip, norm)
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.rate(self.step + 1)
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.tokens += tokens
        draft = config.ttt_length
        losses, right, masked = (outcomes[place * draft : (place + 1) * draft] for place in range(3))
        return StepTotals(loss, losses, right, masked, tokens, float(norm))

    def _not_finite(self, batches: list[tuple[list[Window], Batch]], loss: float, norm: float) -> LossNotFinite:
        """What to say of the step, the same on every rank; each has saved its batches."""
        path = self.failures / f"not-finite-step-{self.step + 1:08d}-rank-{self.ranks.number}.safetensors"
        saved = save_batches(
            path, batches, self.drafter, step=self.step + 1, with_weights=self.ranks.is_first and not self.sharded
        )
        bad = self.ranks.together(samples_not_finite(batches))
        samples = self.ranks.together([window.sample for windows, _ in batches for window in windows])
        cause = (
            f"the stored states of the samples {sorted(set(bad))[:8]} hold NaN or infinity"
            if bad
            else f"the stored states are finite; first not finite is {first_not_finite(self.drafter)}"
        )
        return LossNotFinite(
            f"the loss became {loss} (gradient norm {norm}) at step {self.step + 1}, on samples "
            f"{sorted(set(samples))[:8]} of the store: {cause}. {saved}",
            hint="verify the store (`roost extraction verify`) and leave such samples out; the last checkpoint is sound"
            if bad
            else "lower training.learning_rate or training.gradient_clip; the last checkpoint is sound",
        )

    def _with_targets(self, windows: list[Window], batch: Batch) -> tuple[Batch, Targets]:
        batch = self._with_choices(windows, batch)
        return batch, self.teacher.targets(batch, self.options)

    def _learn(self, batch: Batch, targets: Targets, parts: list[int]) -> Tensor:
        """Add a batch's gradients up; its loss, then the right and the masked positions of each draft step, float64."""
        with self.precision():
            unrolled = self.drafter(
                lambda drafter: unroll(
                    drafter,
                    batch,
                    targets,
                    self.teacher.probabilities(batch, targets),
                    self.draft_ids,
                    denominators=parts,
                    decay=self.config.ttt_decay,
                    options=self.options,
                )
            )
        unrolled.total.backward()
        losses = [float(outcome.loss) for outcome in unrolled.steps]
        right = [float(outcome.right) for outcome in unrolled.steps]
        masked = [outcome.masked for outcome in unrolled.steps]
        return torch.tensor([float(unrolled.total.detach()), *losses, *right, *masked], dtype=torch.float64)

    def rate(self, step: int) -> float:
        """The learning rate of `step`."""
        config = self.config
        return learning_rate(
            step, total_steps=config.steps, peak=config.learning_rate, warmup_fraction=config.warmup_fraction
        )

    def run(
        self,
        batches: Iterator[tuple[list[Window], Batch]],
        *,
        waited_s: Callable[[], float],
        tell: Callable[[StepLogged], None],
        after_step: Callable[[], bool],
    ) -> None:
        """Train until the configured number of steps is done or the first rank's `after_step` returns False."""
        share = self.ranks.share(self.config.batches_per_step)
        tally, waited = Tally(time.monotonic()), waited_s()
        while self.step < self.config.steps:
            try:
                tally.steps.append(self.train_on([next(batches) for _ in range(share)]))
            except LossNotFinite:
                tell(self._log_failure())
                raise
            if self.step % self.config.log_every == 0 or self.step == self.config.steps:
                tell(self._log(tally, waited_s() - waited))
                tally, waited = Tally(time.monotonic()), waited_s()
            if not self._goes_on(after_step):
                return

    def whole_state(self) -> dict[str, Any]:
        """Weights and moments; where they are sharded the other ranks take part in it from within `run`."""
        if self.sharded and self.ranks.is_first:
            self.ranks.as_the_first(None)
        moments = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return whole({"drafter": self.drafter.state_dict(), **moments}, kept=self.ranks.is_first)

    def _goes_on(self, after_step: Callable[[], bool]) -> bool:
        """What the first rank's `after_step` says."""
        if self.ranks.is_first:
            return self.ranks.as_the_first(after_step())
        while (answer := self.ranks.as_the_first(None)) is None:
            self.whole_state()
        return answer

    def _log_failure(self) -> StepLogged:
        return StepLogged(
            step=self.step + 1,
            total_steps=self.config.steps,
            loss=None,
            accuracy=[],
            learning_rate=self.rate(self.step + 1),
            gradient_norm=None,
            tokens_per_s=0.0,
            input_wait_fraction=0.0,
        )

    def _log(self, tally: Tally, waited: float) -> StepLogged:
        elapsed = max(time.monotonic() - tally.started, 1e-9)
        accuracy = tally.accuracy()
        return StepLogged(
            step=self.step,
            total_steps=self.config.steps,
            loss=tally.loss,
            accuracy=accuracy,
            learning_rate=self.rate(self.step),
            gradient_norm=tally.steps[-1].gradient_norm,
            tokens_per_s=tally.tokens / elapsed,
            input_wait_fraction=min(1.0, waited / elapsed),
            losses=tally.losses(),
            acceptance_length=expected_length(accuracy),
            memory_bytes=peak_memory_bytes(self.device),
            eta_s=elapsed / len(tally.steps) * (self.config.steps - self.step),
        )
