"""What helps a drafter to learn: one training for each choice, all else equal, on a store that is there.

Each variant differs from the first one in one thing, is trained in a process of its own with one thread, and is measured on the samples
that no training sees (all of them, for nothing is chosen here). `python bench/study.py STORE MAPPING TARGET [STEPS [SEEDS]]`: directories
of a run (`runs/embedded/store` and `mapping` of the embedded host) and its target; default 150 steps, 2 seeds.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

PROPOSALS = 3


@dataclass(frozen=True)
class Variant:
    """`settings` differ from those of the embedded preset; the head begins as the target's rows, aux states are normalised, and all data
    is read, unless said.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    own_head: bool = True
    normalise_aux: bool = True
    share_of_data: int = 1


VARIANTS = {
    "as the embedded preset": Variant(),
    "head begins at random": Variant(own_head=False),
    "aux states not normalised": Variant(normalise_aux=False),
    "1 draft step trained": Variant({"ttt_length": 1}),
    "5 draft steps trained": Variant({"ttt_length": 5}),
    "half of the conversations": Variant(share_of_data=2),
    "a tenth of the rate": Variant({"learning_rate": 1e-4}),
}


def train(name: str, paths: list[str], steps: int, seed: int) -> dict[str, float]:
    """Train a variant; its acceptance length and first accuracy on held-out text, and the CPU seconds of its steps."""
    import torch  # noqa: PLC0415 - only the children need it

    from remote.agents.training.batches import batches_from  # noqa: PLC0415
    from remote.agents.training.measure import measure_acceptance  # noqa: PLC0415
    from remote.agents.training.model import Drafter  # noqa: PLC0415
    from remote.agents.training.ranks import Ranks  # noqa: PLC0415
    from remote.agents.training.setup import prepare  # noqa: PLC0415
    from remote.agents.training.trainer import Trainer, initialise  # noqa: PLC0415
    from remote.protocol.run import TrainingConfig  # noqa: PLC0415
    from remote.protocol.specs import TrainingSpec  # noqa: PLC0415

    variant = VARIANTS[name]
    preset = {"batch_tokens": 512, "sequence_length": 128, "ttt_length": 3, "learning_rate": 1e-3, "gradient_clip": 1.0}
    settings = {**preset, "warmup_fraction": 0.05, "steps": steps, "seed": seed, **variant.settings}
    config = TrainingConfig(**settings, device="cpu", threads=1)
    store, mapping, target = paths
    spec = TrainingSpec(
        store=store, mapping=mapping, target_model=target, drafter="", checkpoints="", training=config, fingerprint=""
    )
    torch.set_num_threads(1)
    made = prepare(spec, torch.device("cpu"), Ranks())
    begun = made.trainer.drafter
    drafter = Drafter(replace(begun.shape, normalise_aux=variant.normalise_aux))
    head = begun.lm_head.weight.detach()
    if not variant.own_head:
        head = torch.empty_like(head).normal_(0, 0.02, generator=torch.Generator().manual_seed(seed))
    initialise(drafter, embedding=begun.embedding, draft_head=head, seed=seed)
    trainer = Trainer(drafter, made.trainer.teacher, made.trainer.draft_ids, config)
    windows = made.windows[:: variant.share_of_data]
    started = time.process_time()
    for _, batch in zip(range(steps), batches_from(windows, batch_tokens=512, seed=seed, first=0), strict=False):
        trainer.train_on([(batch, made.reader.read(batch))])
    seconds = time.process_time() - started
    kept = made.choosing + made.reporting
    held_out = (made.reader.read(kept[first : first + 8]) for first in range(0, len(kept), 8))
    found = measure_acceptance(drafter, held_out, trainer.draft_ids, steps=PROPOSALS)
    assert found is not None, "the store is too small to hold anything out"
    return {"length": found.length, "accuracy": found.accuracy[0], "tokens": found.tokens, "cpu_s": seconds}


def main(paths: list[str], steps: int, seeds: int) -> None:
    """Train every variant with every seed and print what became of them."""
    print(f"{steps} steps each, {seeds} seeds; acceptance length with {PROPOSALS} proposals, the bonus token included")
    print(f"{'':28}{'length':>8}{'(each seed)':>20}{'first right':>13}{'CPU s':>8}")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for name in VARIANTS:
        command = [sys.executable, __file__, *paths, str(steps), "--one", name]
        runs = [
            json.loads(subprocess.run([*command, str(seed)], env=environment, check=True, capture_output=True).stdout)
            for seed in range(seeds)
        ]
        length, accuracy, cpu_s = (statistics.mean(run[key] for run in runs) for key in ("length", "accuracy", "cpu_s"))
        each = " ".join(f"{run['length']:.3f}" for run in runs)
        print(f"{name:28}{length:8.3f}{each:>20}{accuracy:13.3f}{cpu_s:8.0f}", flush=True)


if __name__ == "__main__":
    places = [str(Path(path).resolve()) for path in sys.argv[1:4]]
    if "--one" in sys.argv:
        print(json.dumps(train(sys.argv[6], places, int(sys.argv[4]), int(sys.argv[7]))))
    else:
        wanted = [int(word) for word in sys.argv[4:6]]
        main(places, *(wanted + [150, 2][len(wanted) :]))
