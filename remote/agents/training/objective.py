"""EAGLE-3's objective: the drafter is unrolled over its own hidden states and compared with the target at each step.

Index t of a row sees aux state t and the embedding of token t+1, and predicts token t+2 from the target's final state t+1;
at draft step k everything but the hidden state moves k further. Shapes: B rows, T tokens, N positions that may count.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from remote.agents.training.attention import StepCache
from remote.agents.training.model import Drafter
from remote.agents.training.numerics import shift_left
from remote.agents.training.packing import Packing
from remote.agents.training.soft_cross_entropy import soft_cross_entropy


@dataclass(frozen=True)
class LossOptions:
    """Three choices on which trainers differ.

    `shift_mask`: the loss mask moves with the token ids (index t counts by the mask of token t+1), or stays.
    `denominator`: each draft step's sum is divided by the positions that count in it ("valid") or by B * T ("all").
    `out_of_vocabulary`: positions whose target argmax is outside the draft vocabulary are left out ("drop") or kept.
    """

    shift_mask: bool = True
    denominator: Literal["valid", "all"] = "valid"
    out_of_vocabulary: Literal["drop", "keep"] = "drop"


SPECFORGE = LossOptions(shift_mask=False, denominator="all", out_of_vocabulary="drop")
"""The choices of SpecForge 0.2.0 and EAGLE."""

SPECULATORS = LossOptions(shift_mask=True, denominator="valid", out_of_vocabulary="keep")
"""The choices of speculators 0.9.0; its KL is the cross-entropy here less the target's entropy."""


def denominators(counted: list[int], positions: int, options: LossOptions) -> list[int]:
    """What each draft step's loss is divided by, from the positions that count in it and all `positions` B * T of a step."""
    return [max(count, 1) if options.denominator == "valid" else positions for count in counted]


@dataclass(frozen=True)
class Batch:
    """Rows of tokens, padded at the right: ids int64 [B, T], loss mask bool [B, T], aux [B, T, L * H], final [B, T, H].

    `argmax` int64 [B, T] is the target's choice after each token, where it is known already. With `packing` the one row holds several
    windows, which are learned as if each had a row.
    """

    input_ids: Tensor
    loss_mask: Tensor
    aux: Tensor
    final: Tensor
    argmax: Tensor | None = None
    packing: Packing | None = None

    def shifted(self, rows: Tensor) -> Tensor:
        """`rows` [B, T, ...] moved one place to the left within each window."""
        return shift_left(rows, self.packing)

    def places(self, lengths: list[int]) -> list[tuple[int, slice]]:
        """Row and columns of each window, which have these lengths."""
        if self.packing is not None:
            return [(0, columns) for columns in self.packing.slices()]
        return [(row, slice(length)) for row, length in enumerate(lengths)]


@dataclass(frozen=True)
class Targets:
    """What the target says at each masked position, in the coordinates of the shifted rows.

    `row`, `index` int64 [N]; `depth` int64 [N]: how far from the beginning of its window; `tokens` int64 [N]: argmax over the whole vocabulary; `in_vocabulary` bool [N]: whether the drafter can
    say that token.
    """

    row: Tensor
    index: Tensor
    depth: Tensor
    tokens: Tensor
    in_vocabulary: Tensor

    def counted(self, step: int, options: LossOptions) -> Tensor:
        """Which of the positions count in the loss of draft step `step`: int64 [n], ascending."""
        places = self.depth >= step
        if options.out_of_vocabulary == "drop":
            places = places & self.in_vocabulary
        return places.nonzero().squeeze(-1)


class Teacher:
    """The target's head: its distribution over the draft vocabulary, and its choice among all tokens in chunks."""

    def __init__(self, head: Tensor, t2d: Tensor, *, chunk_tokens: int = 256) -> None:
        self.head = head
        self.t2d = t2d
        self.draft_head = head[t2d]
        self.chunk_tokens = chunk_tokens

    @torch.no_grad()
    def argmax(self, final: Tensor) -> Tensor:
        """The likeliest token int64 [n] after each of the final states [n, H]; at most a chunk of full logits exists."""
        chunks = [
            functional.linear(chunk.to(self.head.dtype), self.head).argmax(-1)
            for chunk in final.split(self.chunk_tokens)
        ]
        return torch.cat(chunks) if chunks else torch.empty(0, dtype=torch.int64, device=final.device)

    @torch.no_grad()
    def targets(self, batch: Batch, options: LossOptions) -> Targets:
        """What the drafter is to imitate in `batch`."""
        mask = batch.shifted(batch.loss_mask) if options.shift_mask else batch.loss_mask
        row, index = mask.nonzero(as_tuple=True)
        if batch.argmax is None:
            tokens = self.argmax(batch.shifted(batch.final)[row, index])
        else:
            tokens = batch.shifted(batch.argmax)[row, index]
        depth = index if batch.packing is None else index - batch.packing.starts[index]
        return Targets(row, index, depth, tokens, self.t2d[tokens])

    @torch.no_grad()
    def probabilities(self, batch: Batch, targets: Targets) -> Tensor:
        """The target's distribution over the draft vocabulary alone at each of `targets`: float32 [N, D]."""
        final = batch.shifted(batch.final)[targets.row, targets.index]
        return functional.linear(final.to(self.head.dtype), self.draft_head).float().softmax(-1)


@dataclass(frozen=True)
class StepOutcome:
    """One draft step: its share of the loss, how many of the positions that count were right, and how many masked positions there are.

    `counted_right` of `counted` are those of the loss; `right` of `masked` also count unspeakable targets, as wrong.
    """

    loss: Tensor
    right: Tensor
    counted: int
    masked: int


class Unrolled(NamedTuple):
    """The steps' outcomes, and their losses added up with the k-th weighted by `decay ** k`: `total` alone has a gradient."""

    total: Tensor
    steps: list[StepOutcome]


def unroll(
    drafter: Drafter,
    batch: Batch,
    targets: Targets,
    probabilities: Tensor,
    draft_ids: Tensor,
    *,
    denominators: list[int],
    decay: float,
    options: LossOptions,
) -> Unrolled:
    """Run a draft step for each of `denominators`, by which its loss is divided, on the hidden states of the one before.

    `probabilities` float32 [N, D] belong to `targets`; `draft_ids` int64 [D] are the target's ids of the draft vocabulary.
    """
    hidden = drafter.fuse(batch.aux)
    ids = batch.input_ids
    cache = StepCache(batch.packing)
    states: list[Tensor] = []
    rows: list[Tensor] = []
    for step in range(len(denominators)):
        ids = batch.shifted(ids)
        hidden = drafter.step(ids, hidden, cache)
        number = targets.counted(step, options)
        states.append(hidden[targets.row[number], targets.index[number] - step])
        rows.append(number)
    counted = [len(number) for number in rows]
    shares = [decay**step / denominator for step, denominator in enumerate(denominators)]
    weights = torch.tensor(shares, device=hidden.device).repeat_interleave(torch.tensor(counted, device=hidden.device))
    # All steps together: the head's gradient is as large as the head, and is then computed once.
    said = soft_cross_entropy(
        drafter.norm(torch.cat(states)), drafter.lm_head.weight, probabilities, torch.cat(rows), weights
    )
    right = draft_ids[said.choices] == targets.tokens[torch.cat(rows)]
    parts = zip(said.losses.split(counted), right.split(counted), counted, denominators, strict=True)
    outcomes = [
        StepOutcome(losses.sum() / denominator, correct.sum(), count, int((targets.depth >= step).sum()))
        for step, (losses, correct, count, denominator) in enumerate(parts)
    ]
    return Unrolled(said.total, outcomes)
