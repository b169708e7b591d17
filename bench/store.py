"""Writing and reading a store beside raw sequential I/O and beside SpecForge's files, the same tensors on the same disk.

Ours: `StoreWriter` (shards of 2 GiB, hashed, durable, renamed, on record) and `StoreReader`. Peer: what SpecForge 0.2.0 does for each
sample (`torch.save` of the four tensors; `torch.load(mmap=True)`, specforge/data/preprocessing.py), written out here so that the bench
needs no trainer installed; its files are made durable at the end, for a store that is not on the disk is not written. Raw: the same
bytes in one file, `write` and `read` of whole samples. All copy what they read into the same tensors; readers of samples go in a shuffled
order. Cold means that the kernel was told to forget the files before.

    python bench/store.py [DIRECTORY] [SAMPLES] [TURNS]
"""

import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from remote.artifacts.hidden_states import Sample, StoreProperties, StoreReader
from remote.artifacts.store_writer import write_store

TOKENS, LAYERS, HIDDEN = 2048, [3, 31, 59], 7168
SHARD_BYTES = 2 << 30


def make_samples(count: int) -> list[Sample]:
    """Samples of Kimi's shape; two sets of states, in turns, for they need not differ and the memory is for the page cache."""
    source = np.random.default_rng(0)
    states = [source.integers(0, 1 << 15, (TOKENS, len(LAYERS) + 1, HIDDEN), np.uint16) for _ in range(2)]
    sets = [(np.ascontiguousarray(made[:, :-1]), np.ascontiguousarray(made[:, -1])) for made in states]
    ids = source.integers(0, 163_840, TOKENS)
    return [Sample(f"s{number}", ids, ids % 2 == 0, *sets[number % 2]) for number in range(count)]


def properties() -> StoreProperties:
    """What the store says of itself."""
    return StoreProperties(
        model="bench",
        layer_ids=LAYERS,
        hidden_size=HIDDEN,
        dtype="bfloat16",
        final_norm="post_norm",
        target_config_sha256="-",
        tokenizer_sha256="-",
        chat_template_sha256="-",
        engine="none",
        engine_version="0",
    )


def write_ours(place: Path, samples: list[Sample]) -> None:
    """A finished store."""
    write_store(place, properties(), samples, SHARD_BYTES, fingerprint="-", inputs={})


def as_bfloat16(array: np.ndarray) -> torch.Tensor:
    """bfloat16 from its bit patterns, without a copy."""
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def write_peer(place: Path, samples: list[Sample]) -> None:
    """A file a sample, and then all of them on the disk."""
    rows = place / "rows_0-2000"
    rows.mkdir(parents=True)
    for number, sample in enumerate(samples):
        point = {
            "input_ids": torch.from_numpy(sample.input_ids),
            "loss_mask": torch.from_numpy(sample.loss_mask).long(),
            "hidden_state": as_bfloat16(sample.final_hidden_states).unsqueeze(0),
            "aux_hidden_state": as_bfloat16(sample.hidden_states).flatten(1).unsqueeze(0),
        }
        torch.save(point, rows / f"data_{number}.ckpt")
    for path in rows.iterdir():
        sync(path)


def write_raw(place: Path, samples: list[Sample]) -> None:
    """One file."""
    place.mkdir()
    with (place / "raw").open("wb", buffering=0) as file:
        for sample in samples:
            for array in (sample.hidden_states, sample.final_hidden_states):
                data = memoryview(array).cast("B")
                while data:
                    data = data[file.write(data) :]
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """On the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def forget(place: Path) -> None:
    """Out of the page cache."""
    for path in filter(Path.is_file, place.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


AUX = torch.empty(TOKENS, len(LAYERS) * HIDDEN, dtype=torch.bfloat16)
FINAL = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16)
"""Where every reader puts what it has read."""


def shuffled(count: int) -> list[int]:
    """An order as a training has it."""
    order = list(range(count))
    random.Random(0).shuffle(order)
    return order


def read_ours(place: Path, count: int) -> None:
    """Every sample."""
    store = StoreReader(place)
    aux, final = AUX.view(torch.int16).numpy().view(np.uint16), FINAL.view(torch.int16).numpy().view(np.uint16)
    for number in shuffled(count):
        sample = store[number]
        np.copyto(aux, sample.hidden_states.reshape(TOKENS, -1))
        np.copyto(final, sample.final_hidden_states)


def read_peer(place: Path, count: int) -> None:
    """Every sample."""
    for number in shuffled(count):
        point = torch.load(place / f"rows_0-2000/data_{number}.ckpt", weights_only=False, mmap=True)
        AUX.copy_(point["aux_hidden_state"][0])
        FINAL.copy_(point["hidden_state"][0])


def read_raw(place: Path, count: int) -> None:
    """The file from its beginning to its end."""
    buffers = [tensor.view(torch.int16).numpy().data.cast("B") for tensor in (AUX, FINAL)]
    with (place / "raw").open("rb", buffering=0) as file:
        for _ in range(count):
            for buffer in buffers:
                rest = buffer
                while rest:
                    rest = rest[file.readinto(rest) :]


WAYS: dict[str, tuple[Callable[[Path, list[Sample]], None], Callable[[Path, int], None]]] = {
    "ours": (write_ours, read_ours),
    "SpecForge": (write_peer, read_peer),
    "raw": (write_raw, read_raw),
}


def seconds(what: Callable[[], None]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    what()
    return time.perf_counter() - started


def measure(home: Path, samples: list[Sample], turns: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every turn, by what was done and by whom; the ways take turns in changing order."""
    kinds = ("write", "read, cold", "read, warm")
    found: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in WAYS} for kind in kinds}
    names = list(WAYS)
    for turn in range(turns):
        for name in names[turn % 3 :] + names[: turn % 3]:
            write, read = WAYS[name]
            place = home / name
            found["write"][name].append(seconds(lambda write=write, place=place: write(place, samples)))
            forget(place)
            for kind in kinds[1:]:
                found[kind][name].append(seconds(lambda read=read, place=place: read(place, len(samples))))
            shutil.rmtree(place)
    return found


def main() -> None:
    """Measure and print."""
    directory, count, turns = (
        Path(sys.argv[1] if len(sys.argv) > 1 else "."),
        *(int(given) for given in (sys.argv[2:4] + ["16", "3"][len(sys.argv[2:4]) :])),
    )
    torch.set_num_threads(1)
    samples = make_samples(count)
    size = sum(sample.nbytes for sample in samples)
    with tempfile.TemporaryDirectory(dir=directory) as home:
        found = measure(Path(home), samples, turns)
    print(f"{count} samples of {TOKENS} tokens, {size / 2**30:.2f} GiB, median of {turns} turns")
    for kind, by_name in found.items():
        rate = {name: size / statistics.median(times) / 2**20 for name, times in by_name.items()}
        print(
            f"{kind:12}"
            + "".join(f"{name:>10} {value:6.0f} MiB/s" for name, value in rate.items())
            + f"   {rate['ours'] / rate['SpecForge']:5.2f}x SpecForge {rate['ours'] / rate['raw']:5.0%} of raw"
        )


if __name__ == "__main__":
    main()
