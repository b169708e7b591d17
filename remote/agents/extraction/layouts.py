"""The files in which other trainers keep hidden states, one a sample.

SpecForge 0.2.0 (`specforge/data/preprocessing.py`): `rows_<g>-<g + 2000>/data_<i>.ckpt`, torch.save of `input_ids` [T], `loss_mask` [T],
`aux_hidden_state` [1, T, L * H] and `hidden_state` [1, T, H], the final state after the norm. speculators 0.9.0
(`speculators/train/data.py`): `hs_<i>.safetensors` with `token_ids` [T] and `hidden_states` [T, L + 1, H], the last before the final norm; the loss
masks lie in a data set, which we write as `samples.jsonl`, line i for file i (`datasets.Dataset.from_json(...).save_to_disk(...)`).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from remote.artifacts.conversations import read_conversations
from remote.artifacts.hidden_states import Sample
from remote.artifacts.safetensors_file import TAG_OF_DTYPE, open_safetensors
from remote.artifacts.safetensors_stream import Tensor, write_safetensors
from remote.artifacts.store_check import as_float
from remote.errors import Precondition
from remote.protocol.run import Dtype

SAMPLES_NAME = "samples.jsonl"

_ROWS = 2000
_NUMBER = re.compile(r"(\d+)\.\w+\Z")
_NORMS = ("model.norm.weight", "language_model.model.norm.weight")


class Found(NamedTuple):
    """A sample of another trainer, its states still in its file."""

    sample: Sample
    dtype: Dtype


def specforge_path(directory: Path, number: int) -> Path:
    """Where SpecForge keeps its sample of that number."""
    group = number // _ROWS * _ROWS
    return directory / f"rows_{group}-{group + _ROWS}" / f"data_{number}.ckpt"


def write_specforge(path: Path, sample: Sample, dtype: Dtype) -> None:
    """A sample as SpecForge reads it."""
    import torch  # noqa: PLC0415 - only the layout of a trainer that uses it needs it

    def tensor(array: "np.ndarray[Any, Any]") -> torch.Tensor:
        copy = np.array(array)
        return (
            torch.from_numpy(copy.view(np.int16)).view(torch.bfloat16)
            if dtype == "bfloat16"
            else torch.from_numpy(copy)
        )

    path.parent.mkdir(parents=True, exist_ok=True)
    point = {
        "input_ids": torch.from_numpy(np.array(sample.input_ids)),
        "loss_mask": torch.from_numpy(np.array(sample.loss_mask, np.int64)),
        "hidden_state": tensor(sample.final_hidden_states)[None],
        "aux_hidden_state": tensor(sample.hidden_states).flatten(1)[None],
    }
    torch.save(point, path)


def read_specforge(path: Path, layers: int) -> Found:
    """A sample of SpecForge, mapped; raises Precondition where it is none."""
    import torch  # noqa: PLC0415 - as above

    try:
        point = torch.load(path, weights_only=True, mmap=True)
        ids, mask = point["input_ids"].flatten(), point["loss_mask"].flatten()
        aux, final = point["aux_hidden_state"].squeeze(0), point["hidden_state"].squeeze(0)
        aux = aux.reshape(len(ids), layers, final.shape[-1])
    except Exception as error:  # torch raises whatever its unpickler meets
        raise Precondition(f"{path} is no sample of SpecForge with {layers} layers: {error}") from error
    dtype = str(final.dtype).removeprefix("torch.")
    if dtype not in TAG_OF_DTYPE or aux.dtype != final.dtype:
        raise Precondition(f"{path} has states of {aux.dtype} and {final.dtype}")

    def array(tensor: torch.Tensor) -> "np.ndarray[Any, Any]":
        return tensor.view(torch.int16).numpy().view(np.uint16) if dtype == "bfloat16" else tensor.numpy()

    states = array(aux), array(final)
    sample = Sample(path.stem, ids.to(torch.int64).numpy(), mask.bool().numpy(), *states)
    return Found(sample, msgspec.convert(dtype, Dtype))


def final_norm_weight(model: Path) -> "np.ndarray[Any, Any]":
    """The weight of the target's last norm as float32 [H]."""
    for path in sorted(model.glob("*.safetensors")):
        arrays = open_safetensors(path).arrays
        if (name := next((name for name in _NORMS if name in arrays), None)) is not None:
            return as_float(arrays[name])
    raise Precondition(f"{model} has no weights of a final norm", hint="name the target's Hugging Face directory")


def before_norm(final: "np.ndarray[Any, Any]", weight: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """A state that the final norm makes into `final`: its length is lost, but an RMS norm does not see that."""
    return as_float(final) / weight


def speculators_path(directory: Path, number: int) -> Path:
    """Where speculators keeps its sample of that number."""
    return directory / f"hs_{number}.safetensors"


def write_speculators(path: Path, sample: Sample, dtype: Dtype, weight: "np.ndarray[Any, Any] | None") -> None:
    """A sample as speculators reads it; `weight` takes the final norm off where it is on."""
    final = sample.final_hidden_states
    if weight is not None:
        final = _narrow(before_norm(final, weight), dtype)
    states = np.concatenate([sample.hidden_states, final[:, None]], axis=1)
    tensors = {
        "token_ids": Tensor("I64", sample.input_ids.shape, [sample.input_ids]),
        "hidden_states": Tensor(TAG_OF_DTYPE[dtype], states.shape, [states]),
    }
    write_safetensors(path, tensors, {})


def mask_line(sample: Sample) -> bytes:
    """A line of `samples.jsonl`: a row of the data set that speculators' `ArrowDataset` wants beside the states, with its id."""
    ids, mask = sample.input_ids.tolist(), sample.loss_mask.astype(int).tolist()
    row = {"id": sample.sample_id, "input_ids": ids, "loss_mask": mask, "seq_len": len(ids)}
    return msgspec.json.encode(row) + b"\n"


def _narrow(values: "np.ndarray[Any, Any]", dtype: Dtype) -> "np.ndarray[Any, Any]":
    """float32 in a store's dtype, rounded to the nearest, halves to even."""
    if dtype != "bfloat16":
        return values.astype(np.float16 if dtype == "float16" else np.float32)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read_speculators(path: Path, name: str, mask: Sequence[bool]) -> Found:
    """A sample of speculators, mapped; raises Precondition where it is none or the mask is of another."""
    tensors = open_safetensors(path)
    try:
        ids, states, tag = tensors.arrays["token_ids"], tensors.arrays["hidden_states"], tensors.tags["hidden_states"]
    except KeyError as error:
        raise Precondition(f"{path} is no sample of speculators: {error} is missing") from error
    if len(mask) != len(ids) or states.ndim != 3 or len(states) != len(ids):
        raise Precondition(f"{path} has {len(ids)} tokens, states {states.shape}, and a loss mask of {len(mask)}")
    dtype = next((dtype for dtype, its in TAG_OF_DTYPE.items() if its == tag), None)
    if dtype is None:
        raise Precondition(f"{path} has states of {tag}")
    sample = Sample(name, ids, np.array(mask, np.bool_), states[:, :-1], states[:, -1])
    return Found(sample, msgspec.convert(dtype, Dtype))


def read_all(directory: Path, layout: str, layers: int) -> Iterator[Found]:
    """Every sample of a directory in the order of its numbers; raises Precondition where there is none."""
    pattern = "rows_*/data_*.ckpt" if layout == "specforge" else "hs_*.safetensors"
    paths = sorted(directory.glob(pattern), key=lambda path: int(_NUMBER.search(path.name)[1]))  # type: ignore[index]
    if not paths:
        raise Precondition(f"{directory} has no {pattern}")
    if layout == "specforge":
        yield from (read_specforge(path, layers) for path in paths)
        return
    lines = read_conversations(directory / SAMPLES_NAME)
    for path in paths:
        number = int(_NUMBER.search(path.name)[1])  # type: ignore[index]
        if number >= len(lines):
            raise Precondition(f"{directory / SAMPLES_NAME} has no line for {path.name}")
        yield read_speculators(path, lines[number].id, lines[number].loss_mask)
