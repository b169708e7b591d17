"""Counts: merged with weights, kept, and with tokens that are taken in any case."""

from pathlib import Path

import numpy as np
import pytest

from remote.artifacts.mapping import Mapping
from remote.artifacts.token_counts import CountsProperties, force_tokens, merge_counts, read_counts, write_counts
from remote.errors import Precondition, UsageError
from remote.protocol.mappings import CountedSource

COUNTS = np.array([4, 0, 9, 1])
PROPERTIES = CountsProperties(
    target_model="m",
    tokenizer_sha256="t",
    vocab_size=4,
    tokens=14.0,
    sources=[CountedSource(path="s", kind="store", weight=1.0, tokens=14, sha256="h")],
)


def test_weights_scale_counts_and_whole_ones_keep_them_whole() -> None:
    whole = merge_counts([(COUNTS, 2.0), (COUNTS, 1.0)])
    assert whole.dtype == np.int64
    assert whole.tolist() == [12, 0, 27, 3]
    assert merge_counts([(COUNTS, 0.5)]).tolist() == [2.0, 0.0, 4.5, 0.5]
    assert merge_counts([(COUNTS * 0.5, 1.0)]).tolist() == [2.0, 0.0, 4.5, 0.5]


def test_forced_tokens_are_taken_and_the_rest_goes_by_frequency() -> None:
    assert Mapping.from_counts(force_tokens(COUNTS, [1], 2), 2).target_ids.tolist() == [1, 2]
    assert Mapping.from_counts(force_tokens(COUNTS, [1, 1, 3], 3), 3).target_ids.tolist() == [1, 2, 3]
    assert Mapping.from_counts(force_tokens(COUNTS, [], 1), 1).target_ids.tolist() == [2]
    with pytest.raises(UsageError, match="4 is no token"):
        force_tokens(COUNTS, [4], 2)
    with pytest.raises(UsageError, match="do not fit"):
        force_tokens(COUNTS, [0, 1, 2], 2)


def test_kept_counts_come_back_and_damaged_ones_do_not(tmp_path: Path) -> None:
    write_counts(tmp_path, COUNTS, PROPERTIES, fingerprint="f")
    counts, properties = read_counts(tmp_path)
    assert counts.tolist() == COUNTS.tolist()
    assert properties == PROPERTIES
    np.save(tmp_path / "token_counts.npy", COUNTS + 1)
    with pytest.raises(Precondition, match="damaged"):
        read_counts(tmp_path)
