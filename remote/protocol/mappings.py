"""Draft vocabularies by themselves: to build, convert and judge one without a run. Paths are absolute on the host, or below ROOT."""

from typing import Annotated, Literal

import msgspec

from remote.protocol.base import Message
from remote.protocol.run import Fraction, Positive, TemplateVariables

WrittenLayout = Literal["roost", "specforge", "speculators-0.8", "speculators-0.9", "modelopt", "eagle"]
"""Whose files a mapping can be written in."""

MappingLayout = WrittenLayout | Literal["drafter"]
"""Whose files a mapping lies in; a drafter's checkpoint has its own among its tensors."""

INCOMING = "incoming"
"""Where below ROOT mappings of other hosts lie until they are copied to their place."""

SourceKind = Literal["store", "conversations", "counts"]

TokenId = Annotated[int, msgspec.Meta(ge=0)]


class TokenSource(Message, frozen=True, kw_only=True):
    """A store, a JSONL file of conversations, or token counts that were kept; each of its tokens counts `weight` times."""

    path: str
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0


class MappingBuildSpec(Message, frozen=True, kw_only=True):
    """Count the answer tokens of `sources`, keep the counts at `counts`, and build the mapping `destination` from them.

    The `forced` ids, and with `force_special` the target's special tokens, take the places of the rarest. Without a
    `target_model` it is that of the first store or counts. Conversations are read with the template variables of a run's
    `target.chat_template_kwargs`, and cut at its `max_length`.
    """

    sources: Annotated[list[TokenSource], msgspec.Meta(min_length=1)]
    draft_vocab_size: Positive
    destination: str
    counts: str
    target_model: str | None = None
    forced: list[TokenId] = []
    force_special: bool = False
    max_length: Positive | None = None
    chat_template_kwargs: TemplateVariables = {}


class MappingConvertSpec(Message, frozen=True, kw_only=True):
    """Write the mapping at `source` in another layout to `destination`; `target_model` is asked where the source does not say
    how large the target's vocabulary is.
    """

    source: str
    destination: str
    layout: WrittenLayout
    target_model: str | None = None


class MappingCoverageSpec(Message, frozen=True, kw_only=True):
    """Say how much of the answers in `sources` the mapping covers, and what is missing; without a mapping what the best of
    `draft_vocab_size` would. Without a `target_model` it is that of the first store or counts; conversations as for a build.
    """

    sources: Annotated[list[TokenSource], msgspec.Meta(min_length=1)]
    target_model: str | None = None
    mapping: str | None = None
    draft_vocab_size: Positive | None = None
    curve: list[Positive] = []
    missing: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 50
    proposals: Positive = 3
    max_length: Positive | None = None
    minimum_coverage: Fraction | None = None
    chat_template_kwargs: TemplateVariables = {}


class CountedSource(Message, frozen=True, kw_only=True):
    """A source with what was counted in it."""

    path: str
    kind: SourceKind
    weight: float
    tokens: int
    sha256: str


class CurvePoint(Message, frozen=True, kw_only=True):
    """The coverage that the best draft vocabulary of a size has."""

    draft_vocab_size: int
    coverage: float


class MissingToken(Message, frozen=True, kw_only=True):
    """A token without a draft id: how often it was counted, its share of all, and what it decodes to (None: not known)."""

    token_id: int
    count: float
    share: float
    text: str | None


class CoverageReport(Message, frozen=True, kw_only=True):
    """How much of the counted answers a mapping covers. `tokens` are weighted.

    `coverage` bounds the share of proposals that can be accepted at any one place. `acceptance_length_bound` is what a perfect
    drafter with this vocabulary and so many `proposals` a verification would reach on these very answers: tokens after each
    answer's first for one verification, the bonus token included; None where counts alone are known. `best_…` are those of the best mapping of the same size.
    """

    mapping: str | None
    target_model: str
    sources: list[CountedSource]
    tokens: float
    distinct_tokens: int
    target_vocab_size: int
    draft_vocab_size: int
    coverage: float
    best_coverage: float
    proposals: int
    acceptance_length_bound: float | None
    best_acceptance_length_bound: float | None
    curve: list[CurvePoint]
    missing: list[MissingToken]
    missing_tokens: int
    minimum_coverage: Fraction | None = None
