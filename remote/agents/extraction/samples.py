"""What is to be extracted: conversations as token ids with a loss mask, in the order in which they are sent; pure but for reading."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.conversations import Conversation, read_conversations
from remote.artifacts.quarantine import Quarantined
from remote.artifacts.store_plan import Planned
from remote.errors import Precondition
from remote.protocol.specs import Part

NEIGHBOURS = 256
"""Conversations that are sorted by length together: those under way at a time are alike, and the order stays the file's at large."""

_SHOWN_TOKENS = 400


class Samples(NamedTuple):
    """The plan in its order, what of the file is unfit before anything is sent, and how many of the plan were cut."""

    plan: list[Planned]
    unfit: list[Quarantined]
    cut: int

    @property
    def tokens(self) -> int:
        """All tokens of the plan."""
        return sum(len(item.input_ids) for item in self.plan)

    @property
    def loss_tokens(self) -> int:
        """Those that count for the loss."""
        return sum(int(item.loss_mask.sum()) for item in self.plan)


def read_samples(
    conversations: Path,
    template: ChatTemplate,
    *,
    vocab_size: int,
    max_samples: int | None,
    max_length: int,
    part: Part | None = None,
) -> Samples:
    """The samples of a file of conversations, or of a part of it, each cut at `max_length`; what has no answer left, or
    a token that the target does not have, is unfit.

    Raises Precondition for a file that cannot be used at all: none is fit, or two have the same id.
    """
    read = read_conversations(conversations, limit=max_samples)
    if len({conversation.id for conversation in read}) != len(read):
        raise Precondition(f"{conversations} has the same id twice", hint="give every line an id of its own")
    plan: list[Planned] = []
    unfit: list[Quarantined] = []
    cut = 0
    for conversation in read if part is None else read[part.number - 1 :: part.of]:
        try:
            item, is_cut = _plan(conversation, template, vocab_size, max_length)
            plan.append(item)
            cut += is_cut
        except (Precondition, ValueError) as error:
            reason = error.info.message if isinstance(error, Precondition) else str(error)
            unfit.append(Quarantined(sample_id=conversation.id, reason=reason))
    if not plan:
        raise Precondition(
            f"{conversations} has no conversation that can be used; the first: {unfit[0].reason}",
            hint="look at its roles and lengths",
        )
    return Samples(in_order(plan), unfit, cut)


def _plan(conversation: Conversation, template: ChatTemplate, vocab_size: int, max_length: int) -> tuple[Planned, bool]:
    """A conversation as it is sent, and whether its end is missing."""
    if conversation.input_ids is None:
        ids, mask = template.tokenize(conversation.conversations, truncated=conversation.truncated)
    else:
        ids, mask = conversation.input_ids, conversation.loss_mask
    if not any(mask[:max_length]):
        raise ValueError(
            f"no answer within {max_length} tokens" if any(mask) else "no answer: nothing counts for the loss"
        )
    # An engine on a CPU dies of such a token; on GPUs its rows are zeros or those of another token, without a word.
    if (largest := max(ids[:max_length])) >= vocab_size:
        raise ValueError(f"token {largest}: the target has {vocab_size:,}")
    item = Planned(conversation.id, np.array(ids[:max_length], np.int64), np.array(mask[:max_length], np.bool_))
    return item, len(ids) > max_length


def in_order(plan: Sequence[Planned]) -> list[Planned]:
    """By length among neighbours; the same whatever the concurrency, for the store's content depends on it."""
    ordered: list[Planned] = []
    for first in range(0, len(plan), NEIGHBOURS):
        ordered += sorted(plan[first : first + NEIGHBOURS], key=lambda item: len(item.input_ids))
    return ordered


def show_sample(item: Planned, decode: Callable[[list[int]], str]) -> str:
    """The beginning of a sample as text, what counts for the loss between ⟦ and ⟧."""
    ids, mask = item.input_ids[:_SHOWN_TOKENS].tolist(), item.loss_mask[:_SHOWN_TOKENS].tolist()
    text = ""
    start = 0
    for position in range(1, len(ids) + 1):
        if position == len(ids) or mask[position] != mask[start]:
            piece = decode(ids[start:position])
            text += f"⟦{piece}⟧" if mask[start] else piece
            start = position
    return text if len(item.input_ids) <= _SHOWN_TOKENS else f"{text} …"
