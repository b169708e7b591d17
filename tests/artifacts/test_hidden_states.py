"""The store: what goes in comes out, and a crash anywhere leaves something true."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.artifacts.hidden_states import Sample, StoreProperties, StoreReader, StoreWriter
from remote.artifacts.manifest import verify
from remote.errors import Precondition, UsageError

H, LAYERS = 4, [1, 2, 3]


def properties(dtype: str = "bfloat16") -> StoreProperties:
    return StoreProperties(
        model="m",
        layer_ids=LAYERS,
        hidden_size=H,
        dtype=dtype,
        final_norm="post_norm",
        target_config_sha256="c",
        tokenizer_sha256="t",
        chat_template_sha256="j",
        engine="sglang",
        engine_version="0.5.23",
    )


def sample(number: int, length: int = 5) -> Sample:
    states = np.random.default_rng(number).integers(0, 1 << 15, (length, len(LAYERS) + 1, H)).astype(np.uint16)
    ids = (np.arange(length) + number) % 11
    return Sample(f"s{number}", ids.astype(np.int64), ids % 2 == 0, states[:, :-1], states[:, -1])


def equal(left: Sample, right: Sample) -> bool:
    return left.sample_id == right.sample_id and all(
        np.array_equal(a, b) for a, b in zip(left[1:], right[1:], strict=True)
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 600), st.integers(0, 12))
def test_round_trip_with_a_restart_anywhere(
    tmp_path_factory, lengths: list[int], shard_bytes: int, restart: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    samples = [sample(number, length) for number, length in enumerate(lengths)]
    writer = StoreWriter(directory, properties(), shard_bytes)
    for item in samples[:restart]:
        writer.append(item)
    (directory / "shard-00099.safetensors.part").write_bytes(b"torn")
    writer = StoreWriter(directory, properties(), shard_bytes)
    have = writer.done_sample_ids
    for item in samples:
        if item.sample_id not in have:
            writer.append(item)
    reference = writer.finish(fingerprint="f", inputs={})
    reader = StoreReader(directory)
    found = {item.sample_id: item for item in reader}
    assert len(reader) == len(samples) == len(found)
    assert all(equal(found[item.sample_id], item) for item in samples)
    assert reader.properties.tokens == sum(lengths)
    verify(directory)
    assert reference.kind == "store"
    expected = np.bincount(np.concatenate([s.input_ids[s.loss_mask] for s in samples]), minlength=11)
    assert reader.token_counts(11).tolist() == expected.tolist()


def test_any_safetensors_reader_opens_a_shard(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, properties(), 1)
    writer.append(sample(7))
    tensors = safetensors.torch.load_file(tmp_path / "shard-00000.safetensors")
    assert tensors["hidden_states"].dtype == torch.bfloat16
    assert tensors["hidden_states"].shape == (5, len(LAYERS), H)
    assert np.array_equal(
        tensors["final_hidden_states"].view(torch.int16).numpy().view(np.uint16), sample(7).final_hidden_states
    )
    assert tensors["loss_mask"].dtype == torch.bool


def test_an_unfinished_store_is_not_read(tmp_path: Path) -> None:
    StoreWriter(tmp_path, properties(), 1).append(sample(1))
    with pytest.raises(Precondition, match="unfinished"):
        StoreReader(tmp_path)


def test_a_shard_of_another_size_is_refused(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, properties(), 1)
    writer.append(sample(1))
    writer.finish(fingerprint="f", inputs={})
    shard = tmp_path / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(Precondition, match="shard-00000"):
        StoreReader(tmp_path)


def test_a_zero_tail_of_the_right_size_is_found_by_its_hash(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, properties(), 1)
    writer.append(sample(1))
    writer.finish(fingerprint="f", inputs={})
    shard = tmp_path / "shard-00000.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-8] + bytes(8))
    with pytest.raises(Precondition, match="other content"):
        verify(tmp_path)


def test_shapes_and_types_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, properties(), 1)
    good = sample(1)
    with pytest.raises(UsageError, match="hidden_states"):
        writer.append(good._replace(hidden_states=good.hidden_states[:, :2]))
    with pytest.raises(UsageError, match="float32"):
        writer.append(good._replace(final_hidden_states=good.final_hidden_states.astype(np.float32)))
