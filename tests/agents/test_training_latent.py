"""A drafter with DeepSeek's latent attention: the same numbers as transformers', what engines are told, and that it learns."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from remote.agents.training.attention import LatentAttention, StepCache
from remote.agents.training.export import ExportedMapping, write_checkpoint
from remote.agents.training.initial import read_initial
from remote.agents.training.latent import Latent, read_latent, servable
from remote.agents.training.model import Drafter
from remote.agents.training.numerics import shift_left
from remote.agents.training.rope import Linear, Rope, Yarn
from remote.agents.training.shape import DrafterShape
from remote.agents.training.target import TargetConfig, read_target_config
from remote.artifacts.mapping import Mapping
from remote.errors import Precondition
from remote.pipeline.estimates import drafter_parameters
from remote.pipeline.inputs import describe_target
from remote.protocol.codec import decode_progress_record
from remote.protocol.progress import StepLogged
from remote.protocol.run import DataConfig, DrafterConfig, EngineConfig, ExtractionConfig, RunConfig, VocabularyConfig
from remote.protocol.run import TargetConfig as TargetSection
from remote.protocol.specs import DrafterExportSpec, TrainingSpec

from .test_training_worker import LAYERS, VOCABULARY, Inputs, Run, wait_for_checkpoint

REPOSITORY = Path(__file__).parents[2]
WIDTHS = Latent(q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5)
YARN = Yarn(factor=8.0, original_max_position_embeddings=16, beta_fast=32, beta_slow=1)
ROPES = {
    "plain": Rope(10000.0),
    "kimi": Rope(50000.0, msgspec.structs.replace(YARN, beta_fast=1.0, mscale=1.0, mscale_all_dim=1.0)),
    "deepseek-v2": Rope(10000.0, msgspec.structs.replace(YARN, mscale=0.707, mscale_all_dim=0.5)),
    "no-scales": Rope(10000.0, YARN),
}
TOKENS, STEPS, PLACES = 40, 3, [0, 1, 17, 36]


def shape(rope: Rope = ROPES["kimi"]) -> DrafterShape:
    return DrafterShape(
        hidden_size=24,
        intermediate_size=32,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=8,
        vocab_size=30,
        draft_vocab_size=8,
        aux_layers=3,
        rms_norm_eps=1e-3,
        rope=rope,
        max_position_embeddings=128,
        normalise_aux=True,
        latent=WIDTHS,
    )


def target(rope: Rope) -> TargetConfig:
    return TargetConfig(
        architecture="DeepseekV3ForCausalLM",
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=8,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=8,
        vocab_size=30,
        rms_norm_eps=1e-3,
        rope=rope,
        max_position_embeddings=128,
        dtype="float32",
        token_ids={},
        latent=WIDTHS,
    )


def random_drafter(rope: Rope) -> Drafter:
    torch.manual_seed(1)
    drafter = Drafter(shape(rope))
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.3)
    drafter.embedding = torch.randn(30, 24)
    return drafter


def mapping() -> ExportedMapping:
    kept = torch.arange(0, 24, 3)
    mask = torch.zeros(30, dtype=torch.bool)
    mask[kept] = True
    return ExportedMapping(kept - torch.arange(8), mask)


@torch.no_grad()
def drafts(drafter: Drafter, ids: torch.Tensor, aux: torch.Tensor) -> torch.Tensor:
    """Logits [steps, T, D] of a row, as a training unrolls them."""
    hidden, cache = drafter.fuse(aux[None]), StepCache()
    ids, said = ids[None, :TOKENS], []
    for _ in range(STEPS):
        ids = shift_left(ids)
        hidden = drafter.step(ids, hidden, cache)
        said.append(drafter.logits(hidden)[0])
    return torch.stack(said)


def test_what_is_exported_drafts_in_transformers_as_it_was_trained(engine_python, tmp_path):
    ours: dict[str, torch.Tensor] = {}
    for name, rope in ROPES.items():
        place = tmp_path / name
        place.mkdir()
        drafter = random_drafter(rope)
        write_checkpoint(place, drafter, mapping(), target=target(rope), layer_ids=[2, 4, 5])
        ids, aux = torch.randint(0, 30, (TOKENS + STEPS,)), torch.randn(TOKENS, 72)
        given = {"ids": ids, "aux": aux, "embedding": drafter.embedding, "places": torch.tensor(PLACES)}
        save_file(given, place / "inputs.st")
        ours[name] = drafts(drafter, ids, aux)[:, PLACES].transpose(0, 1)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "remote/engines/sglang_cpu"), "OMP_NUM_THREADS": "1"}
    command = [engine_python, Path(__file__).with_name("latent_reader.py"), *(tmp_path / name for name in ROPES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    for name, expected in ours.items():
        theirs = load_file(tmp_path / name / "logits.st")["logits"]
        torch.testing.assert_close(theirs, expected, rtol=1e-4, atol=1e-4, msg=name)


def test_gradients_are_those_of_differences():
    torch.manual_seed(2)
    attention = LatentAttention(shape(), WIDTHS).double()
    weights = [value.detach() for _, value in sorted(attention.named_parameters())]
    names = [name for name, _ in sorted(attention.named_parameters())]
    states = torch.randn(2, 5, 48, dtype=torch.float64)

    def attended(*changed: torch.Tensor) -> torch.Tensor:
        cache = StepCache()
        named = dict(zip(names, changed, strict=True))
        first, second, third = (
            torch.func.functional_call(attention, named, (part, cache)) for part in (states, states + 1, states * 0.5)
        )
        return (first * second * third).sum()

    inputs = [weight.requires_grad_() for weight in weights]
    # The softmax is float32 whatever the states are, so differences are taken over a wider step than usual.
    assert torch.autograd.gradcheck(attended, inputs, eps=1e-2, atol=1e-2, rtol=1e-2, fast_mode=True)


@pytest.mark.parametrize(
    ("latent", "rope", "said"),
    [
        (None, Rope(), "names not all of q_lora_rank"),
        (WIDTHS, Rope(1e4, Linear(factor=2.0)), "linear rope"),
        (WIDTHS, Rope(1e4, msgspec.structs.replace(YARN, mscale=1.0)), "one of mscale"),
        (WIDTHS, Rope(1e4, msgspec.structs.replace(YARN, attention_factor=1.0)), "attention_factor"),
        (WIDTHS, Rope(1e4, msgspec.structs.replace(YARN, truncate=False)), "truncate"),
        (msgspec.structs.replace(WIDTHS, qk_rope_head_dim=5), Rope(), "odd qk_rope_head_dim"),
    ],
)
def test_what_no_engine_serves_is_refused(latent, rope, said):
    with pytest.raises(Precondition, match=said):
        servable(latent, rope)


def test_a_target_that_compresses_no_queries_has_no_such_drafter():
    widths = msgspec.to_builtins(WIDTHS)
    assert read_latent(widths) == WIDTHS
    assert read_latent(widths | {"q_lora_rank": None}) is None
    assert read_latent({}) is None


class LatentInputs(Inputs):
    """The worker's tests' inputs, with a target whose config names the widths of latent attention."""

    def _write_target(self) -> None:
        super()._write_target()
        path = self.directory / "target/config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | msgspec.to_builtins(WIDTHS)))

    def mla(self, output: str, **settings) -> TrainingSpec:
        choices = {"drafter": DrafterConfig(architecture="mla"), "steps": 20, "checkpoint_every": 5, **settings}
        return self.spec(output=output, **choices)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> LatentInputs:
    """With a drafter that was trained on them in `whole/drafter`."""
    made = LatentInputs(tmp_path_factory.mktemp("latent"))
    run = Run(made.directory / "whole-job", made.mla("whole"))
    assert run.wait() == 0, run.text()
    return made


def weights(inputs: Inputs, output: str) -> dict[str, torch.Tensor]:
    return load_file(inputs.directory / output / "drafter/model.safetensors")


def test_it_learns_and_says_what_it_is(inputs):
    progress = (inputs.directory / "whole-job/progress.jsonl").read_bytes().splitlines()
    events = [decode_progress_record(line).event for line in progress]
    losses = [event.loss for event in events if isinstance(event, StepLogged)]
    assert losses[-1] < losses[0] / 2
    config = json.loads((inputs.directory / "whole/drafter/config.json").read_text())
    assert config["architectures"] == ["Eagle3DeepseekV2ForCausalLM"]
    assert {name: config[name] for name in Latent.__struct_fields__} == msgspec.to_builtins(WIDTHS)
    attention = {name.split(".")[2] for name in weights(inputs, "whole") if "self_attn" in name}
    assert attention == {
        "q_a_proj",
        "q_a_layernorm",
        "q_b_proj",
        "kv_a_proj_with_mqa",
        "kv_a_layernorm",
        "kv_b_proj",
        "o_proj",
    }


@pytest.mark.slow
def test_a_killed_training_goes_on_to_where_an_unbroken_one_ends(inputs):
    spec = inputs.mla("killed")
    first = Run(inputs.directory / "killed-job", spec)
    wait_for_checkpoint(first)
    first.process.kill()
    first.wait()
    second = Run(inputs.directory / "killed-job-2", spec)
    assert second.wait() == 0, second.text()
    assert "resumed from step" in second.text()
    unbroken, gone_on = (weights(inputs, output) for output in ("whole", "killed"))
    assert all(torch.equal(gone_on[name], weight) for name, weight in unbroken.items())


def test_one_that_has_learned_is_gone_on_from_with_its_own_vocabulary(inputs, tmp_path):
    learned = inputs.directory / "whole/drafter"
    # What it is comes from its own config, not from the run file.
    spec = inputs.spec(output="again", steps=2, checkpoint_every=2, learning_rate=0.0, init_from=str(learned))
    run = Run(inputs.directory / "again-job", spec)
    assert run.wait() == 0, run.text()
    before, after = (weights(inputs, output) for output in ("whole", "again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())

    target = read_target_config(inputs.directory / "target")
    other = Mapping.from_target_ids(np.arange(1, 25), VOCABULARY)
    others = ExportedMapping(torch.from_numpy(other.d2t.copy()), torch.from_numpy(other.t2d.copy()))
    with pytest.raises(Precondition, match="has another draft vocabulary"):
        read_initial(learned, others, target, LAYERS)
    copied = shutil.copytree(learned, tmp_path / "drafter")
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"rope_interleave": False}))
    own = Mapping.from_target_ids(np.arange(24), VOCABULARY)
    with pytest.raises(Precondition, match="rope_interleave"):
        read_initial(
            copied,
            ExportedMapping(torch.from_numpy(own.d2t.copy()), torch.from_numpy(own.t2d.copy())),
            target,
            LAYERS,
        )


def test_speculators_has_no_such_drafter(inputs):
    spec = DrafterExportSpec(training=inputs.mla("whole"), directory="theirs", layout="speculators")
    run = Run(inputs.directory / "export-job", spec, "exporting")
    assert run.wait() == 5
    assert "speculators 0.9 has no drafter with latent attention" in run.failure()


def test_the_plan_counts_its_parameters(inputs):
    """A rank of 10 columns in place of heads; the estimate leaves out the auxiliary norms and the last norm, as for Llama's kind."""
    found = describe_target(inputs.directory / "target")
    spec = inputs.mla("whole")
    assert found.latent == WIDTHS
    exported = {name: value for name, value in weights(inputs, "whole").items() if name not in {"d2t", "t2d"}}
    norms = sum(value.numel() for name, value in exported.items() if name.startswith("fc_norm"))
    run = RunConfig(
        name="a",
        target=TargetSection(model="target"),
        engine=EngineConfig(),
        data=DataConfig(train="train", evaluation="held-out"),
        extraction=ExtractionConfig(layer_ids=LAYERS),
        vocabulary=VocabularyConfig(draft_vocab_size=24),
        training=spec.training,
    )
    assert drafter_parameters(run, found) == sum(value.numel() for value in exported.values()) - norms
