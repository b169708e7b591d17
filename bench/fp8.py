"""What fp8 would do to a store of bfloat16 states: its size, the error of the states, and what a drafter learns of them.

Each row (one layer of one token, and each final state) is kept as float8 e4m3 with a float32 scale that puts its largest value at 448.
Errors are those of what comes back, in bfloat16 again, against what was there: of the vectors, and of the target's distribution, made of
the final states by its own head. Then the trainer's job learns, for each seed, from the store as it is and from one whose states went
through fp8, both on the same samples in the same order; its figures are those of the last checkpoint on held-out text. What seeds alone
change stands beside it. `python bench/fp8.py RUN PRESET [STEPS] [SEEDS]`: RUN holds a store and a mapping, the preset says how to train.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import torch

from remote.agents.training.target import read_target_weights
from remote.artifacts.hidden_states import Sample, StoreReader
from remote.artifacts.manifest import read_manifest
from remote.artifacts.store_writer import write_store
from remote.pipeline.config import load_run
from remote.protocol.codec import decode_progress_record
from remote.protocol.progress import DrafterMeasured
from remote.protocol.run import TrainingConfig
from remote.protocol.specs import TrainingSpec

REPOSITORY = Path(__file__).resolve().parents[1]
LARGEST = torch.finfo(torch.float8_e4m3fn).max
SHARD_BYTES = 64 << 20


def as_tensor(states: np.ndarray) -> torch.Tensor:
    """Bits of bfloat16 as float32."""
    return torch.from_numpy(states.copy().view(np.int16)).view(torch.bfloat16).float()


def through_fp8(states: torch.Tensor) -> torch.Tensor:
    """What comes back of [..., H], in float32."""
    scale = states.abs().amax(-1, keepdim=True).clamp_min(1e-30) / LARGEST
    return ((states / scale).to(torch.float8_e4m3fn).float() * scale).to(torch.bfloat16).float()


def as_bits(states: torch.Tensor) -> np.ndarray:
    """Float32 as the bits of bfloat16."""
    return states.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def quantized(store: StoreReader) -> Iterator[Sample]:
    """The samples with what comes back of their states."""
    for one in store:
        kept = [as_bits(through_fp8(as_tensor(states))) for states in (one.hidden_states, one.final_hidden_states)]
        yield Sample(one.sample_id, one.input_ids, one.loss_mask, *kept)


def tell_errors(store: StoreReader, model: Path, samples: int = 40) -> None:
    """Print the errors of vectors and distributions."""
    layers, final, divergence, same, tokens = [], [], 0.0, 0, 0
    head = read_target_weights(model).head.float()
    for one in list(store)[:samples]:
        for states, kept in ((one.hidden_states, layers), (one.final_hidden_states, final)):
            was = as_tensor(states)
            kept.append(
                ((through_fp8(was) - was).norm(dim=-1) / was.norm(dim=-1)).reshape(
                    -1, was.shape[1] if was.ndim == 3 else 1
                )
            )
        was = as_tensor(one.final_hidden_states)
        before, after = (torch.log_softmax(states @ head.T, -1) for states in (was, through_fp8(was)))
        divergence += float((before.exp() * (before - after)).sum())
        same += int((before.argmax(-1) == after.argmax(-1)).sum())
        tokens += len(was)
    by_layer = torch.cat(layers).mean(0)
    named = ", ".join(
        f"layer {id_} {error:.2%}" for id_, error in zip(store.properties.layer_ids, by_layer, strict=True)
    )
    print(f"relative error of a row: {named}, final {torch.cat(final).mean():.2%}")
    print(
        f"the target's distribution: divergence {divergence / tokens:.5f} nats a token, the same first token in {same / tokens:.2%}"
    )


def learn(place: Path, store: Path, run: Path, model: Path, training: TrainingConfig) -> DrafterMeasured:
    """What the trainer's job measured last."""
    place.mkdir()
    spec = TrainingSpec(
        store=str(store),
        mapping=str(run / "mapping"),
        target_model=str(model),
        drafter=str(place / "drafter"),
        checkpoints=str(place / "checkpoints"),
        training=training,
        fingerprint="bench",
    )
    (place / "spec.json").write_bytes(msgspec.json.encode(spec))
    environment = os.environ | {"ROOST_JOB_DIR": str(place), "ROOST_ROOT": str(place), "PYTHONPATH": str(REPOSITORY)}
    with (place / "out.log").open("wb") as log:
        command = [sys.executable, "-m", "remote.agents.training.worker"]
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)
    lines = (place / "progress.jsonl").read_bytes().splitlines(keepends=True)
    events = [decode_progress_record(line).event for line in lines]
    return [event for event in events if isinstance(event, DrafterMeasured)][-1]


def main(run: Path, preset: str, steps: int, seeds: int) -> None:
    """Print errors, then a line for each store."""
    torch.set_num_threads(1)
    store = StoreReader(run / "store")
    model = Path(store.properties.model)
    width, tokens = store.properties.hidden_size, store.properties.tokens
    print(
        f"{model.name}: {len(store)} samples, {tokens:,} tokens; a row takes {width + 4} bytes in place of {2 * width}: {(width + 4) / (2 * width):.1%}"
    )
    tell_errors(store, model)
    config = load_run(f'preset = "{preset}"\n', {}).training
    with tempfile.TemporaryDirectory() as made:
        other = Path(made) / "store"
        inputs = read_manifest(run / "store").inputs
        write_store(other, store.properties, list(quantized(store)), SHARD_BYTES, fingerprint="fp8", inputs=inputs)
        print(f"{steps} steps; held-out acceptance length, and share of right first tokens")
        for name, place in (("bfloat16", run / "store"), ("through fp8", other)):
            found = []
            for seed in range(seeds):
                training = msgspec.structs.replace(config, steps=steps, checkpoint_every=steps, seed=seed, threads=1)
                found.append(
                    learn(Path(made) / f"{place.parent.name}-{name.split()[-1]}-{seed}", place, run, model, training)
                )
            lengths = [one.acceptance_length for one in found]
            shown = " ".join(f"{length:.3f}" for length in lengths)
            first = statistics.mean(one.accuracy[0] for one in found)
            print(f"{name:12} {shown}   mean {statistics.mean(lengths):.3f}   {first:.2%}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python bench/fp8.py RUN PRESET [STEPS] [SEEDS]")
    numbers = [int(text) for text in sys.argv[3:]] + [100, 3][len(sys.argv) - 3 :]
    main(Path(sys.argv[1]).resolve(), sys.argv[2], *numbers)
