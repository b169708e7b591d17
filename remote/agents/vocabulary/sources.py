"""Where tokens are counted: stores, conversations, and counts that were kept."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remote.artifacts.chat_template import ChatTemplate, hash_tokenizer
from remote.artifacts.conversations import read_conversations
from remote.artifacts.hidden_states import FORMAT as STORE_FORMAT
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.manifest import MANIFEST_NAME, hash_file, read_manifest
from remote.artifacts.mapping_coverage import Answers, answers_of
from remote.artifacts.target_tokens import target_vocab_size
from remote.artifacts.token_counts import FORMAT as COUNTS_FORMAT
from remote.artifacts.token_counts import merge_counts, read_counts
from remote.errors import NotFound, Precondition, UsageError
from remote.paths import resolve_path
from remote.protocol.mappings import CountedSource, SourceKind, TokenSource
from remote.protocol.run import TemplateVariables

Array = np.ndarray[Any, Any]

_OTHER_TOKENIZER = "count the conversations anew with this target, or name the target that it was made with"


class Counted(NamedTuple):
    """One source: what was counted in it [V], and its answers one part after the other, None where counts are all there is."""

    source: CountedSource
    counts: Array
    answers: Callable[[], Iterator[Answers]] | None


def find_target(named: str | None, sources: Sequence[TokenSource], root: Path) -> Path:
    """The target's directory: the one that is named, else that of the first store or counts; raises UsageError."""
    if named is not None:
        return resolve_path(root, named)
    for source in sources:
        path = resolve_path(root, source.path)
        if (path / MANIFEST_NAME).is_file():
            properties = read_manifest(path).properties
            found = properties.get("target_model") or properties.get("model")
            if isinstance(found, str):
                return root / found
    raise UsageError(
        "conversations do not say which tokenizer reads them", hint="name the target's directory: --target MODEL"
    )


class Counter:
    """Counts the answer tokens of sources by the ids of one target; raises Precondition where a source has another's.

    Conversations are read by its template with `variables`, and each is cut at `max_length`.
    """

    def __init__(self, target_model: Path, root: Path, *, max_length: int | None, variables: TemplateVariables) -> None:
        self.vocab_size = target_vocab_size(target_model)
        self.tokenizer_sha256 = hash_tokenizer(target_model)
        self._model = target_model
        self._root = root
        self._max_length = max_length
        self._variables = variables

    def count(self, source: TokenSource) -> Counted:
        """Count one source; raises NotFound where there is nothing."""
        path = resolve_path(self._root, source.path)
        if path.is_file():
            return self._count_conversations(path, source)
        if not path.is_dir():
            raise NotFound(
                f"there is nothing to count at {path}",
                hint="name a store, a JSONL file of conversations, or counts that were kept, on the host",
            )
        manifest = read_manifest(path)
        if manifest.format == STORE_FORMAT:
            return self._count_store(path, source)
        if manifest.format == COUNTS_FORMAT:
            return self._take_counts(path, source)
        raise Precondition(f"{path} holds a {manifest.format}: no tokens to count", hint="name a store or counts")

    def _count_store(self, path: Path, source: TokenSource) -> Counted:
        store = StoreReader(path)
        self._require_tokenizer(path, store.properties.tokenizer_sha256)

        def answers() -> Iterator[Answers]:
            return (answers_of(ids, mask, starts) for ids, mask, starts in store.shard_tokens())

        counts = store.token_counts(self.vocab_size)
        return Counted(_describe(path, "store", source, counts, hash_file(path / MANIFEST_NAME)), counts, answers)

    def _count_conversations(self, path: Path, source: TokenSource) -> Counted:
        template, parts = ChatTemplate(self._model, self._variables), list[Answers]()
        for conversation in read_conversations(path):
            if conversation.input_ids is None:
                read, counts_for_loss = template.tokenize(conversation.conversations, truncated=conversation.truncated)
            else:
                read, counts_for_loss = conversation.input_ids, conversation.loss_mask
            if max(read, default=0) >= self.vocab_size:
                raise Precondition(
                    f"{path}: {conversation.id} has token {max(read)}, {self._model} has {self.vocab_size}"
                )
            ids = np.asarray(read[: self._max_length], np.int32)
            mask = np.asarray(counts_for_loss[: self._max_length], np.bool_)
            parts.append(answers_of(ids, mask, np.zeros(1, np.int64)))
        answered = np.concatenate([part.tokens for part in parts]) if parts else np.zeros(0, np.int32)
        counts = np.bincount(answered, minlength=self.vocab_size)
        return Counted(_describe(path, "conversations", source, counts, hash_file(path)), counts, lambda: iter(parts))

    def _take_counts(self, path: Path, source: TokenSource) -> Counted:
        counts, properties = read_counts(path)
        self._require_tokenizer(path, properties.tokenizer_sha256)
        if len(counts) != self.vocab_size:
            raise Precondition(f"{path} counts {len(counts)} tokens, {self._model} has {self.vocab_size}")
        return Counted(_describe(path, "counts", source, counts, hash_file(path / MANIFEST_NAME)), counts, None)

    def _require_tokenizer(self, path: Path, sha256: str) -> None:
        if sha256 != self.tokenizer_sha256:
            raise Precondition(
                f"the ids in {path} come from another tokenizer than that of {self._model}", hint=_OTHER_TOKENIZER
            )


def merged(counted: Sequence[Counted], variables: TemplateVariables) -> Array:
    """The weighted counts [V] of several sources.

    Raises Precondition where nothing counts for the loss, UsageError for template `variables` that no source was read with.
    """
    if variables and not any(one.source.kind == "conversations" for one in counted):
        raise UsageError(
            f"no conversations are read with {', '.join(variables)}",
            hint="leave the template's variables out: a store and kept counts were read with their own",
        )
    counts = merge_counts([(one.counts, one.source.weight) for one in counted])
    if not counts.any():
        paths = ", ".join(one.source.path for one in counted)
        raise Precondition(f"no token of {paths} counts for the loss", hint="name data with answers")
    return counts


def _describe(path: Path, kind: SourceKind, source: TokenSource, counts: Array, sha256: str) -> CountedSource:
    return CountedSource(path=str(path), kind=kind, weight=source.weight, tokens=int(counts.sum()), sha256=sha256)
