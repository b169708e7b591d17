"""The training loop: float32 masters under AdamW, compute in bfloat16 where the processor multiplies it, one batch a step."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from remote.agents.training.batches import Window
from remote.agents.training.model import Drafter
from remote.agents.training.objective import Batch, LossOptions, StepOutcome, Teacher, unroll
from remote.agents.training.schedule import learning_rate
from remote.errors import WorkFailed
from remote.protocol.progress import StepLogged
from remote.protocol.run import TrainingConfig

_BETAS = (0.9, 0.95)


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


@dataclass
class Tally:
    """Sums since the last log line."""

    started: float
    steps: int = 0
    tokens: int = 0
    loss: float = 0.0

    def __post_init__(self) -> None:
        self.right: list[float] = []
        self.masked: list[int] = []

    def add(self, loss: float, outcomes: list[StepOutcome], tokens: int) -> None:
        """One more step."""
        self.steps += 1
        self.tokens += tokens
        self.loss += loss
        self.right = _sums(self.right, [float(outcome.right) for outcome in outcomes])
        self.masked = _sums(self.masked, [outcome.masked for outcome in outcomes])

    def accuracy(self) -> list[float]:
        """Share of the masked positions that each draft position got right; what the drafter cannot say counts as wrong."""
        return [right / max(masked, 1) for right, masked in zip(self.right, self.masked, strict=True)]


def _sums(old: list, new: list) -> list:
    return [a + b for a, b in zip(old, new, strict=True)] if old else new


class LossNotFinite(WorkFailed):
    """A step whose loss or gradient is NaN or infinite; nothing was learned from it."""


class Trainer:
    """A drafter, its optimizer and its teacher; `step` counts the optimizer steps done, `tokens` what they read."""

    def __init__(self, drafter: Drafter, teacher: Teacher, draft_ids: Tensor, config: TrainingConfig) -> None:
        self.drafter = drafter
        self.teacher = teacher
        self.draft_ids = draft_ids
        self.config = config
        self.options = LossOptions()
        self.device = draft_ids.device
        self.autocast = multiplies_bfloat16(self.device)
        self.step = 0
        self.tokens = 0
        self.optimizer = torch.optim.AdamW(
            drafter.parameters(), lr=config.learning_rate, betas=_BETAS, weight_decay=config.weight_decay, fused=True
        )
        self._choices: dict[Window, Tensor] = {}

    def precision(self) -> torch.autocast:
        """The context that the drafter computes in."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast)

    def _with_choices(self, windows: list[Window], batch: Batch) -> Batch:
        """`batch` with the target's choices, computed the first time that each window is met (they never change)."""
        choices = torch.zeros_like(batch.input_ids)
        new = [row for row, window in enumerate(windows) if window not in self._choices]
        if new:
            places = batch.loss_mask[new]
            chosen = torch.zeros_like(batch.input_ids[new])
            chosen[places] = self.teacher.argmax(batch.final[new][places])
            for row, tokens in zip(new, chosen, strict=True):
                self._choices[windows[row]] = tokens[: windows[row].length].to("cpu", torch.int32)
        for row, window in enumerate(windows):
            choices[row, : window.length] = self._choices[window].to(self.device)
        return Batch(batch.input_ids, batch.loss_mask, batch.aux, batch.final, choices)

    def train_on(self, windows: list[Window], batch: Batch) -> tuple[float, list[StepOutcome], float]:
        """One optimizer step; returns the loss, the outcome of each draft step and the gradient's norm before clipping.

        Raises LossNotFinite; the weights are then those before the step.
        """
        config = self.config
        targets = self.teacher.targets(self._with_choices(windows, batch), self.options)
        with self.precision():
            unrolled = unroll(
                self.drafter,
                batch,
                targets,
                self.draft_ids,
                steps=config.ttt_length,
                decay=config.ttt_decay,
                options=self.options,
            )
        unrolled.total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), config.gradient_clip))
        value = float(unrolled.total.detach())
        if not (math.isfinite(value) and math.isfinite(norm)):
            raise LossNotFinite(
                f"the loss became {value} (gradient norm {norm}) at step {self.step + 1}, on samples "
                f"{sorted({window.sample for window in windows})[:8]} of the store",
                hint="lower training.learning_rate or training.gradient_clip; the last checkpoint is sound",
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step + 1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.tokens += sum(window.length for window in windows)
        return value, unrolled.steps, norm

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
        """Train until the configured number of steps is done or `after_step` returns False."""
        tally, waited = Tally(time.monotonic()), waited_s()
        while self.step < self.config.steps:
            windows, batch = next(batches)
            try:
                loss, outcomes, norm = self.train_on(windows, batch)
            except LossNotFinite:
                tell(self._log_failure())
                raise
            tally.add(loss, outcomes, sum(window.length for window in windows))
            if self.step % self.config.log_every == 0 or self.step == self.config.steps:
                tell(self._log(tally, norm, waited_s() - waited))
                tally, waited = Tally(time.monotonic()), waited_s()
            if not after_step():
                return

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

    def _log(self, tally: Tally, norm: float, waited: float) -> StepLogged:
        elapsed = max(time.monotonic() - tally.started, 1e-9)
        return StepLogged(
            step=self.step,
            total_steps=self.config.steps,
            loss=tally.loss / tally.steps,
            accuracy=tally.accuracy(),
            learning_rate=self.rate(self.step),
            gradient_norm=norm,
            tokens_per_s=tally.tokens / elapsed,
            input_wait_fraction=min(1.0, waited / elapsed),
        )
