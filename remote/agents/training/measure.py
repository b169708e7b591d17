"""How well a drafter would do in serving, measured on stored text: greedy speculation walked along the target's own tokens.

While a chain of proposals is right its inputs are the stored tokens themselves, so the teacher-forced steps give exactly
the accepted length at every index; a walk over them counts verifications as the engine would.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from remote.agents.training.attention import StepCache
from remote.agents.training.model import Drafter
from remote.agents.training.objective import Batch

MEASURED_DRAFTS = 3
"""Proposals a verification with which drafters are measured, and that a speculators config asks for."""


@dataclass(frozen=True)
class Acceptance:
    """`lengths[n]`: tokens per verification with n + 1 proposals, the bonus token included; `accuracy` of each draft position;
    `tokens` walked.
    """

    lengths: list[float]
    accuracy: list[float]
    tokens: int

    @property
    def length(self) -> float:
        """The acceptance length with all proposals."""
        return self.lengths[-1]


def correct_drafts(drafter: Drafter, batch: Batch, draft_ids: Tensor, steps: int) -> Tensor:
    """Whether draft step k at index t says the stored token t+2+k: bool [steps, B, T]."""
    hidden = drafter.fuse(batch.aux)
    ids = batch.shifted(batch.input_ids)
    cache = StepCache(batch.packing)
    correct: list[Tensor] = []
    for _ in range(steps):
        hidden = drafter.step(ids, hidden, cache)
        ids = batch.shifted(ids)
        correct.append(draft_ids[drafter.logits(hidden).argmax(-1)] == ids)
    return torch.stack(correct)


def walk(accepted: list[int]) -> int:
    """The verifications that it takes when index t accepts `accepted[t]` proposals and each adds one token more."""
    place = verifications = 0
    while place < len(accepted):
        place += accepted[place] + 1
        verifications += 1
    return verifications


@torch.no_grad()
def measure_acceptance(
    drafter: Drafter, batches: Iterable[Batch], draft_ids: Tensor, *, steps: int
) -> Acceptance | None:
    """Walk the masked tokens of `batches` with 1 to `steps` proposals a verification; None where there is nothing to walk."""
    tokens = 0
    verifications = [0] * steps
    right = torch.zeros(steps, dtype=torch.int64)
    for batch in batches:
        correct = correct_drafts(drafter, batch, draft_ids, steps).cpu()
        accepted = correct.long().cumprod(0).sum(0)
        fed = batch.shifted(batch.loss_mask)
        predicted = (fed & batch.shifted(fed)).cpu()
        right += (correct & predicted).sum((1, 2))
        for place in batch.places([batch.input_ids.shape[1]] * len(batch.input_ids)):
            walked = accepted[place][predicted[place]]
            tokens += len(walked)
            for proposals in range(1, steps + 1):
                verifications[proposals - 1] += walk(walked.clamp(max=proposals).tolist())
    if tokens == 0:
        return None
    return Acceptance([tokens / count for count in verifications], (right / tokens).tolist(), tokens)
