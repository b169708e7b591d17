"""The store: what goes in comes out, and a crash anywhere leaves something true."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from remote.artifacts.hidden_states import JOURNAL, Sample, StoreProperties, StoreReader
from remote.artifacts.manifest import verify
from remote.artifacts.quarantine import Quarantined, read_quarantine
from remote.artifacts.safetensors_file import open_safetensors
from remote.artifacts.store_plan import Planned, planned_shards
from remote.artifacts.store_writer import StoreWriter, write_store
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


def plan_of(samples: list[Sample]) -> list[Planned]:
    return [Planned(item.sample_id, item.input_ids, item.loss_mask) for item in samples]


def content(directory: Path) -> dict[str, bytes]:
    """Everything but the manifest, which has the time in it."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "manifest.json"}


def write_all(writer: StoreWriter, samples: list[Sample], unfit: set[int], until: int | None = None) -> None:
    """Write up to position `until`; what is in `unfit` is quarantined in its turn."""
    while writer.next_sample is not None or writer.shard_is_whole:
        if writer.shard_is_whole:
            writer.seal()
        elif until is not None and writer.position >= until:
            return
        elif writer.position in unfit:
            writer.leave_out([Quarantined(sample_id=samples[writer.position].sample_id, reason="unfit")])
        else:
            writer.write(samples[writer.position])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_store_is_the_same_however_often_it_is_interrupted(tmp_path_factory, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    samples = [sample(number, length) for number, length in enumerate(lengths)]
    shard_bytes = data.draw(st.integers(1, 2500))
    unfit = data.draw(st.sets(st.integers(0, len(lengths) - 1), max_size=len(lengths) - 1))
    plain, broken = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("broken")
    writer = StoreWriter(plain, properties(), plan_of(samples), shard_bytes)
    write_all(writer, samples, unfit)
    writer.finish(fingerprint="f", inputs={})
    for stop in data.draw(st.lists(st.integers(0, len(lengths)), max_size=4)):
        writer = StoreWriter(broken, properties(), plan_of(samples), shard_bytes)
        write_all(writer, samples, unfit, until=stop)
        if data.draw(st.booleans()):
            writer.suspend()
        else:  # killed: what is half-written stays
            (broken / "shard-00099.safetensors.part").write_bytes(b"torn")
    writer = StoreWriter(broken, properties(), plan_of(samples), shard_bytes)
    write_all(writer, samples, unfit)
    writer.finish(fingerprint="f", inputs={})
    assert content(broken) == content(plain)
    verify(broken)
    reader = StoreReader(broken)
    kept = [item for number, item in enumerate(samples) if number not in unfit]
    assert len(reader) == len(kept) == reader.properties.samples
    assert all(map(equal, reader, kept))
    assert [entry.sample_id for entry in read_quarantine(broken)] == [f"s{number}" for number in sorted(unfit)]
    counted = [item.input_ids[item.loss_mask] for item in kept]
    expected = np.bincount(np.concatenate(counted) if counted else np.empty(0, np.int64), minlength=11)
    assert reader.token_counts(11).tolist() == expected.tolist()
    for path in broken.glob("shard-*"):
        assert path.stat().st_size <= shard_bytes or len(safetensors.torch.load_file(path)["sample_offsets"]) == 2


def test_the_sizes_of_all_shards_are_known_beforehand(tmp_path: Path) -> None:
    samples = [sample(number, 3 + number) for number in range(9)]
    write_store(tmp_path, properties(), samples, 900, fingerprint="f", inputs={})
    lengths = [len(item.input_ids) for item in samples]
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("shard-*"))]
    assert planned_shards(lengths, properties(), 900) == sizes
    assert len(sizes) > 2


def test_an_unfinished_shard_that_was_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(3)]
    writer = StoreWriter(tmp_path, properties(), plan_of(samples), 1 << 20)
    writer.write(samples[0])
    writer.suspend()
    part = tmp_path / "shard-00000.safetensors.part"
    data = bytearray(part.read_bytes())
    place = data.find(samples[0].hidden_states.tobytes())
    data[place : place + 8] = bytes(8)
    part.write_bytes(data)
    assert StoreWriter(tmp_path, properties(), plan_of(samples), 1 << 20).position == 0


def test_a_part_without_its_header_is_no_safetensors_file(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(3)]
    writer = StoreWriter(tmp_path, properties(), plan_of(samples), 1 << 20)
    writer.write(samples[0])
    with pytest.raises(Precondition, match="no whole safetensors file"):
        open_safetensors(tmp_path / "shard-00000.safetensors.part")


def test_what_was_begun_with_others_is_not_mixed(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(3)]
    StoreWriter(tmp_path, properties(), plan_of(samples), 1).append(samples[0])
    with pytest.raises(Precondition, match="dtype was bfloat16"):
        StoreWriter(tmp_path, properties("float16"), plan_of(samples), 1)
    with pytest.raises(Precondition, match="other samples"):
        StoreWriter(tmp_path, properties(), plan_of(samples[1:]), 1)


def test_a_data_loader_reads_with_several_workers(tmp_path: Path) -> None:
    samples = [sample(number, 3 + number) for number in range(9)]
    write_store(tmp_path, properties(), samples, 600, fingerprint="f", inputs={})
    for context in ("fork", "spawn"):
        loader = DataLoader(
            StoreReader(tmp_path), batch_size=None, num_workers=2, collate_fn=as_lists, multiprocessing_context=context
        )
        assert list(loader) == [as_lists(item) for item in samples]


def as_lists(item: Sample) -> list[object]:
    return [item.sample_id, *(array.tolist() for array in item[1:])]


def test_a_sample_is_a_view_of_the_file(tmp_path: Path) -> None:
    write_store(tmp_path, properties(), [sample(7)], 1, fingerprint="f", inputs={})
    item = StoreReader(tmp_path)[0]
    assert not any(array.flags.owndata or array.flags.writeable for array in item[1:])


def test_any_safetensors_reader_opens_a_shard(tmp_path: Path) -> None:
    write_store(tmp_path, properties(), [sample(7)], 1, fingerprint="f", inputs={})
    tensors = safetensors.torch.load_file(tmp_path / "shard-00000.safetensors")
    assert tensors["hidden_states"].dtype == torch.bfloat16
    assert tensors["hidden_states"].shape == (5, len(LAYERS), H)
    assert np.array_equal(
        tensors["final_hidden_states"].view(torch.int16).numpy().view(np.uint16), sample(7).final_hidden_states
    )
    assert tensors["loss_mask"].dtype == torch.bool


def test_an_unfinished_store_is_not_read(tmp_path: Path) -> None:
    StoreWriter(tmp_path, properties(), plan_of([sample(1)]), 1).append(sample(1))
    with pytest.raises(Precondition, match="unfinished"):
        StoreReader(tmp_path)


def test_a_shard_of_another_size_is_refused(tmp_path: Path) -> None:
    write_store(tmp_path, properties(), [sample(1)], 1, fingerprint="f", inputs={})
    shard = tmp_path / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(Precondition, match="shard-00000"):
        StoreReader(tmp_path)


def test_a_zero_tail_of_the_right_size_is_found_by_its_hash(tmp_path: Path) -> None:
    write_store(tmp_path, properties(), [sample(1)], 1, fingerprint="f", inputs={})
    shard = tmp_path / "shard-00000.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-8] + bytes(8))
    with pytest.raises(Precondition, match="other content"):
        verify(tmp_path)


def test_shapes_and_types_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    good = sample(1)
    writer = StoreWriter(tmp_path, properties(), plan_of([good]), 1)
    with pytest.raises(UsageError, match="hidden_states"):
        writer.append(good._replace(hidden_states=good.hidden_states[:, :2]))
    with pytest.raises(UsageError, match="float32"):
        writer.append(good._replace(final_hidden_states=good.final_hidden_states.astype(np.float32)))


def test_a_shard_is_durable_before_it_has_its_header_its_name_and_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut there may be what was synced, in that order, and nothing else."""
    taken: list[tuple[str, str]] = []

    def noting(name: str, subject: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            taken.append((name, subject(*arguments)))
            return real(*arguments, **named)

        monkeypatch.setattr(os, name, call)

    def file_of(descriptor: int, *_: Any) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    noting("fsync", file_of)
    noting("pwrite", lambda descriptor, _, offset: f"{file_of(descriptor)} {'header' if offset == 0 else 'rows'}")
    noting("rename", lambda source, *_: Path(source).name)
    noting("replace", lambda source, *_: Path(source).name)
    write_store(tmp_path / "store", properties(), [sample(0), sample(1)], 1 << 20, fingerprint="f", inputs={})
    part, journal = "shard-00000.safetensors.part", JOURNAL
    steps = [
        step for step, before in zip(taken, [None, *taken], strict=False) if step != before and "begun" not in step[1]
    ]
    start = steps.index(("pwrite", f"{part} rows"))
    whole = steps[start : steps.index(("fsync", journal)) + 1]
    named = next(name for name, subject in whole if name in ("rename", "replace"))
    assert [step for step in whole if step != ("pwrite", f"{part} rows")] == [
        ("fsync", part),
        ("pwrite", f"{part} header"),
        ("fsync", part),
        (named, part),
        ("fsync", "store"),
        ("fsync", journal),
    ]
    assert whole.index(("fsync", part)) > max(n for n, step in enumerate(whole) if step == ("pwrite", f"{part} rows"))
    after = steps[steps.index(("fsync", journal)) + 1 :]
    assert any("manifest.json" in subject for name, subject in after if name in ("rename", "replace"))
