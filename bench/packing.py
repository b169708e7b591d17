"""What packing gains: the embedded host's conversations as windows one after another, and side by side in rows that are padded.

`bench/training.py` runs it under the engine's Python: `packing.py MODEL CONVERSATIONS BATCH_TOKENS`. Both orders fill batches from the same
shuffled conversations; side by side, 64 of them at a time are sorted by length and a batch ends where its padded rows would not fit.
One thread, float32; a step is forward, backward, gradient clipping and AdamW, and a figure is the epoch's own tokens over the processor's seconds.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoTokenizer

from remote.agents.training.batches import Window, plan_epoch
from remote.agents.training.model import Drafter
from remote.agents.training.objective import Batch, Teacher
from remote.agents.training.packing import Packing
from remote.agents.training.rope import Rope
from remote.agents.training.shape import DrafterShape
from remote.agents.training.trainer import Trainer, initialise
from remote.protocol.run import TrainingConfig

CONVERSATIONS, NEIGHBOURS, TTT = 128, 64, 7
HIDDEN, VOCABULARY, DRAFT_VOCABULARY, AUX = 256, 16_384, 4_096, 3


def windows(model: str, conversations: str) -> list[Window]:
    """The first conversations, each a window as long as the target's tokenizer makes it."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    found: list[Window] = []
    for number, line in enumerate(Path(conversations).read_text().splitlines()[:CONVERSATIONS]):
        turns = [{"role": turn["role"], "content": turn["content"]} for turn in json.loads(line)["conversations"]]
        found.append(Window(number, 0, len(tokenizer.apply_chat_template(turns)["input_ids"])))
    return found


def padded(windows: list[Window], batch_tokens: int) -> list[list[Window]]:
    """Batches whose rows, all as long as the longest, have at most `batch_tokens` tokens."""
    order = list(windows)
    random.Random(0).shuffle(order)
    batches: list[list[Window]] = []
    for first in range(0, len(order), NEIGHBOURS):
        batch: list[Window] = []
        for window in sorted(order[first : first + NEIGHBOURS], key=lambda window: window.length):
            if batch and (len(batch) + 1) * window.length > batch_tokens:
                batches.append(batch)
                batch = []
            batch.append(window)
        batches.append(batch)
    return batches


def _batch(rows: int, length: int, source: torch.Generator, packing: Packing | None) -> Batch:
    mask = (torch.arange(length) // 16 % 2 == 1).repeat(rows, 1)
    return Batch(
        torch.randint(VOCABULARY, (rows, length), generator=source),
        mask,
        torch.randn(rows, length, AUX * HIDDEN, generator=source),
        torch.randn(rows, length, HIDDEN, generator=source),
        packing=packing,
    )


def rows(windows: list[Window], source: torch.Generator) -> Batch:
    """Random states, the windows side by side; what is padding counts for nothing."""
    batch = _batch(len(windows), max(window.length for window in windows), source, None)
    for row, window in enumerate(windows):
        batch.loss_mask[row, window.length :] = False
    return batch


def one_row(windows: list[Window], source: torch.Generator) -> Batch:
    """Random states, the windows one after another."""
    packing = Packing.of([window.length for window in windows], torch.device("cpu"))
    return _batch(1, packing.offsets[-1], source, packing)


def _trainer() -> Trainer:
    source = torch.Generator().manual_seed(1)
    head = torch.randn(VOCABULARY, HIDDEN, generator=source) * HIDDEN**-0.5
    t2d = torch.arange(VOCABULARY) < DRAFT_VOCABULARY
    shape = DrafterShape(
        hidden_size=HIDDEN,
        intermediate_size=704,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        vocab_size=VOCABULARY,
        draft_vocab_size=DRAFT_VOCABULARY,
        aux_layers=AUX,
        rms_norm_eps=1e-5,
        rope=Rope(),
        max_position_embeddings=4096,
    )
    drafter = Drafter(shape)
    initialise(drafter, embedding=torch.randn(VOCABULARY, HIDDEN, generator=source), draft_head=head[t2d], seed=1)
    trainer = Trainer(drafter, Teacher(head, t2d), torch.arange(DRAFT_VOCABULARY), TrainingConfig(ttt_length=TTT))
    trainer.autocast = False
    return trainer


def tokens_per_cpu_s(batches: list[list[Window]], make: Callable[[list[Window], torch.Generator], Batch]) -> float:
    """The windows' own tokens over the processor's seconds of an epoch, which others on the machine change less than the clock's."""
    trainer, source = _trainer(), torch.Generator().manual_seed(2)
    made = [(batch, make(batch, source)) for batch in batches]
    trainer.train_on(made[:1])
    started = time.process_time()
    for pair in made:
        trainer.train_on([pair])
    return sum(window.length for batch in batches for window in batch) / (time.process_time() - started)


def main(model: str, conversations: str, batch_tokens: int) -> None:
    """Print how full the batches are, and how fast an epoch is, in three turns of either order."""
    found = windows(model, conversations)
    tokens = sum(window.length for window in found)
    orders = {
        "side by side, padded": (padded(found, batch_tokens), rows),
        "packed": (plan_epoch(found, batch_tokens=batch_tokens, seed=0, epoch=0), one_row),
    }
    print(
        f"packing: {len(found)} conversations, {tokens:,} tokens, batches of at most {batch_tokens}, {TTT} draft steps"
    )
    print(f"{'':28}{'batches':>10}{'padding':>10}{'filled':>10}{'tokens/s':>10}")
    turns = [{name: tokens_per_cpu_s(*order) for name, order in orders.items()} for _ in range(3)]
    for name, (batches, make) in orders.items():
        sizes = [sum(window.length for window in batch) for batch in batches]
        held = sum(sizes)
        if make is rows:
            held = sum(len(batch) * max(window.length for window in batch) for batch in batches)
        filled = tokens / (len(batches) * batch_tokens)
        rate = sorted(turn[name] for turn in turns)[1]
        print(f"{name:28}{len(batches):10}{1 - tokens / held:10.1%}{filled:10.1%}{rate:10.0f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
