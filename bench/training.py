"""One optimizer step of EAGLE-3 training: ours beside SpecForge 0.2.0 (sdpa) and speculators 0.9.0 (sdpa), equal in dimensions, batch and steps.

Each runs in a process of its own with one thread, in turns, on the same tensors: random aux states, final states whose likeliest
token lies in the draft vocabulary for 95% of the positions, and a loss mask in runs that covers half of them, as replies do in chat.
A step is forward, backward, gradient clipping and AdamW in float32. Memory is the peak of the resident set during the steps over what
was resident before the first one (model, teacher and batch are there already). SpecForge also runs with its compact teacher.
The peers are installed beside the embedded engine's torch for the run. `python bench/training.py [TURNS]` (default 3); needs
`make demo`'s set-up.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer
    from transformers import LlamaConfig

REPOSITORY = Path(__file__).resolve().parents[1]
PEERS = REPOSITORY / "bench/peer-requirements.txt"
CLIP, RATE, DECAY = 0.5, 1e-4, 0.8
AUX = 3


@dataclass(frozen=True)
class Case:
    """Sizes of the drafter and of a batch; `turns_of` steps are timed in each process."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    draft_vocabulary: int
    rows: int
    tokens: int
    ttt: int
    timed_steps: int


CASES = {
    "speed": Case(256, 704, 4, 2, 16_384, 4_096, 2, 512, 7, 3),
    "long rows": Case(256, 704, 4, 2, 16_384, 4_096, 1, 2_048, 7, 1),
    "Kimi's vocabulary": Case(256, 704, 4, 2, 163_840, 32_000, 1, 1_024, 3, 1),
}


def _data(case: Case) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    source = torch.Generator().manual_seed(7)
    head = torch.randn(case.vocabulary, case.hidden, generator=source) * case.hidden**-0.5
    chosen = torch.randperm(case.vocabulary, generator=source)[: case.draft_vocabulary].sort().values
    t2d = torch.zeros(case.vocabulary, dtype=torch.bool)
    t2d[chosen] = True
    size = (case.rows, case.tokens)
    likely = chosen[torch.randint(case.draft_vocabulary, size, generator=source)]
    rare = torch.randint(case.vocabulary, size, generator=source)
    said = torch.where(torch.rand(size, generator=source) < 0.95, likely, rare)
    return {
        "ids": torch.randint(case.vocabulary, size, generator=source),
        "aux": torch.randn(*size, AUX * case.hidden, generator=source),
        "final": 8 * head[said] + 0.1 * torch.randn(*size, case.hidden, generator=source),
        "mask": (torch.arange(case.tokens) // 64 % 2 == 1).expand(size),
        "head": head,
        "t2d": t2d,
        "d2t": chosen - torch.arange(case.draft_vocabulary),
        "embedding": torch.randn(case.vocabulary, case.hidden, generator=source) * 0.02,
    }


def _ours(case: Case, data: dict[str, Any]) -> Callable[[], float]:
    from remote.agents.training.batches import Window  # noqa: PLC0415
    from remote.agents.training.model import Drafter  # noqa: PLC0415
    from remote.agents.training.objective import Batch, Teacher  # noqa: PLC0415
    from remote.agents.training.rope import Rope  # noqa: PLC0415
    from remote.agents.training.shape import DrafterShape  # noqa: PLC0415
    from remote.agents.training.trainer import Trainer, initialise  # noqa: PLC0415
    from remote.protocol.run import TrainingConfig  # noqa: PLC0415

    shape = DrafterShape(
        hidden_size=case.hidden,
        intermediate_size=case.intermediate,
        num_attention_heads=case.heads,
        num_key_value_heads=case.kv_heads,
        head_dim=case.hidden // case.heads,
        vocab_size=case.vocabulary,
        draft_vocab_size=case.draft_vocabulary,
        aux_layers=AUX,
        rms_norm_eps=1e-5,
        rope=Rope(),
        max_position_embeddings=4096,
    )
    drafter = Drafter(shape)
    initialise(drafter, embedding=data["embedding"], draft_head=data["head"][data["t2d"]], seed=1)
    config = TrainingConfig(learning_rate=RATE, ttt_length=case.ttt, ttt_decay=DECAY, gradient_clip=CLIP)
    draft_ids = data["t2d"].nonzero().squeeze(-1)
    trainer = Trainer(drafter, Teacher(data["head"], data["t2d"]), draft_ids, config)
    trainer.autocast = False
    batch = Batch(data["ids"], data["mask"], data["aux"], data["final"])
    turns = iter(range(1 << 30))

    def step() -> float:
        # A window that was not met before: what an epoch after the first saves is not counted.
        turn = next(turns) * case.rows
        windows = [Window(turn + row, 0, case.tokens) for row in range(case.rows)]
        return trainer.train_on([(windows, batch)]).loss

    return step


def _layer(case: Case, **more: object) -> "LlamaConfig":
    from transformers import LlamaConfig  # noqa: PLC0415

    return LlamaConfig(
        hidden_size=case.hidden,
        intermediate_size=case.intermediate,
        num_hidden_layers=1,
        num_attention_heads=case.heads,
        num_key_value_heads=case.kv_heads,
        head_dim=case.hidden // case.heads,
        vocab_size=case.vocabulary,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        **more,
    )


def _finish(parameters: "list[Tensor]", loss: "Tensor", optimizer: "Optimizer") -> float:
    import torch  # noqa: PLC0415

    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, CLIP)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def _specforge(case: Case, data: dict[str, Any], *, compact: bool = False) -> Callable[[], float]:
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    import specforge.algorithms.eagle3.model as eagle3  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from specforge.core.loss import _compute_loss  # noqa: PLC0415
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3  # noqa: PLC0415
    from specforge.utils import padding  # noqa: PLC0415

    # Its Triton kernel needs a GPU; this is the reference that it ships beside it.
    eagle3.LogSoftmaxLoss = type("LogSoftmaxLoss", (), {"apply": staticmethod(_compute_loss)})
    config = _layer(case, pad_token_id=0)
    config.draft_vocab_size = case.draft_vocabulary
    drafter = LlamaForCausalLMEagle3(config, attention_backend="sdpa").float()
    drafter.t2d.copy_(data["t2d"])
    drafter.d2t.copy_(data["d2t"])
    drafter.freeze_embedding()
    model = eagle3.OnlineEagle3Model(drafter, length=case.ttt, attention_backend="sdpa")
    parameters = [parameter for parameter in drafter.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, fused=True)

    def step() -> float:
        final = padding(data["final"], left=False)
        if compact:
            teacher = {"target": None, "target_hidden_for_compact": final, "target_head_weight": data["head"]}
        else:
            with torch.no_grad():
                teacher = {"target": final @ data["head"].T}
        losses = model(
            input_ids=padding(data["ids"], left=False),
            attention_mask=torch.ones_like(data["ids"]),
            loss_mask=data["mask"].long()[..., None],
            hidden_states=data["aux"],
            **teacher,
        )[0]
        return _finish(parameters, sum(DECAY**k * loss for k, loss in enumerate(losses)), optimizer)

    return step


def _compact(case: Case, data: dict[str, Any]) -> Callable[[], float]:
    return _specforge(case, data, compact=True)


def _speculators(case: Case, data: dict[str, Any]) -> Callable[[], float]:
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    import torch  # noqa: PLC0415
    from speculators import SpeculatorsConfig, VerifierConfig  # noqa: PLC0415
    from speculators.losses import resolve_loss_config  # noqa: PLC0415
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: PLC0415
    from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: PLC0415

    proposal = GreedyTokenProposalConfig(speculative_tokens=case.ttt)
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=_layer(case, attn_implementation="sdpa"),
        draft_vocab_size=case.draft_vocabulary,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[proposal],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
        ),
    )
    drafter = Eagle3DraftModel(config).float()
    drafter.load_vocab_mappings(data["t2d"], data["d2t"])
    with torch.no_grad():
        drafter.embed_tokens.weight.copy_(data["embedding"])
        drafter.lm_head.weight.copy_(data["head"][data["t2d"]])
        drafter.verifier_lm_head.weight.copy_(data["head"][data["t2d"]])
        drafter.verifier_norm.weight.fill_(1.0)
    parameters = [parameter for parameter in drafter.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, fused=True)
    documents = torch.arange(case.rows).repeat_interleave(case.tokens)[None]
    # It reads rows side by side, each less its first token and its last aux state.
    ids, mask, final = (data[name].flatten(0, 1)[None] for name in ("ids", "mask", "final"))
    aux = data["aux"].flatten(0, 1)[None]

    def step() -> float:
        _, loss, _ = drafter(
            aux[:, :-1],
            ids[:, 1:],
            documents[:, 1:],
            loss_mask=mask[:, 1:],
            verifier_last_hidden_states=final[:, 1:],
            ttt_steps=case.ttt,
            ttt_step_loss_decay=DECAY,
            loss_config=resolve_loss_config("kl_div", "eager"),
        )
        return _finish(parameters, loss, optimizer)

    return step


TRAINERS = {
    "roost": _ours,
    "specforge": _specforge,
    "specforge, compact teacher": _compact,
    "speculators": _speculators,
}


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise RuntimeError(field)


def measure(trainer: str, name: str) -> dict[str, float]:
    """Tokens a second and the peak bytes of `trainer`'s steps on a case, in this process."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(1)
    case = CASES[name]
    step = TRAINERS[trainer](case, _data(case))
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    first = step()
    started = time.perf_counter()
    for _ in range(case.timed_steps):
        last = step()
    seconds = time.perf_counter() - started
    return {
        "tokens_per_s": case.rows * case.tokens * case.timed_steps / seconds,
        "peak_mib": (_resident("VmHWM") - before) / 2**20,
        "first_loss": first,
        "last_loss": last,
    }


def _child(engine: Path, peers: Path, trainer: str, case: str) -> dict[str, float]:
    paths = [REPOSITORY, REPOSITORY / "remote/engines/sglang_cpu", peers]
    environment = os.environ | {"PYTHONPATH": ":".join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    command = [engine, __file__, trainer, case]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout.splitlines()[-1])


def _packing(engine: Path, root: Path) -> None:
    """Print what packing gains on the embedded host's conversations."""
    paths = [REPOSITORY, REPOSITORY / "remote/engines/sglang_cpu"]
    environment = os.environ | {"PYTHONPATH": ":".join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    inputs = [root / "models/smollm2-135m-instruct", root / "conversations/smollm2_train.jsonl"]
    for batch_tokens in ("512", "2048"):
        command = [engine, REPOSITORY / "bench/packing.py", *inputs, batch_tokens]
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)


def main(turns: int) -> None:
    """Measure every trainer on every case, in turns, and print medians and ratios; then what packing gains."""
    from console.embedded.locations import EmbeddedHome  # noqa: PLC0415

    home = EmbeddedHome.default()
    engine = home.engine_python
    _packing(engine, home.root)
    with tempfile.TemporaryDirectory() as peers:
        install = [engine, "-m", "pip", "install", "--quiet", "--no-deps", "--target", peers, "-r", PEERS]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        for name, case in CASES.items():
            found = {trainer: [] for trainer in TRAINERS}
            for _ in range(turns):
                for trainer in TRAINERS:
                    found[trainer].append(_child(engine, Path(peers), trainer, name))
            print(
                f"{name}: {case.rows} x {case.tokens} tokens, {case.ttt} draft steps, hidden size {case.hidden}, ",
                end="",
            )
            print(f"{case.vocabulary:,} -> {case.draft_vocabulary:,} tokens; median of {turns} turns")
            print(f"{'':28}{'tokens/s':>10}{'ours is':>10}{'peak MiB':>10}{'ours is':>10}")
            for trainer, runs in found.items():
                speed, peak = (statistics.median(run[key] for run in runs) for key in ("tokens_per_s", "peak_mib"))
                if trainer == "roost":
                    our_speed, our_peak = speed, peak
                print(f"{trainer:28}{speed:10.0f}{our_speed / speed:9.2f}x{peak:10.0f}{our_peak / peak:9.2f}x")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
