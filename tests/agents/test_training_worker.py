"""The training agent on a small real store: it learns, stops, resumes and refuses, and leaves what a server can read."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from remote.agents.training.checkpoint import newest_checkpoint
from remote.artifacts.hidden_states import Sample, StoreProperties
from remote.artifacts.manifest import read_manifest, verify, write_manifest
from remote.artifacts.mapping import Mapping, write_mapping
from remote.artifacts.store_writer import write_store
from remote.protocol.codec import decode_progress_record
from remote.protocol.jobs import JobResult
from remote.protocol.progress import CheckpointSaved, DrafterMeasured, StepLogged
from remote.protocol.run import DrafterConfig, TrainingConfig
from remote.protocol.specs import DrafterExportSpec, TrainingSpec

REPOSITORY = Path(__file__).parents[2]
VOCABULARY, HIDDEN, LAYERS = 40, 32, [1, 2, 3]


def _save_tensors(path: Path, array: np.ndarray) -> None:
    torch.save(torch.from_numpy(array.copy()), path)


class Inputs:
    """A target, a store and a mapping in `directory`; the text counts upwards modulo 23, so a drafter can learn it."""

    def __init__(
        self,
        directory: Path,
        *,
        dtype: str = "float32",
        final_norm: str = "post_norm",
        samples: int = 60,
        broken: int | None = None,
    ) -> None:
        self.directory = directory
        self.broken = broken
        generator = torch.Generator().manual_seed(0)
        self.embedding = torch.randn(VOCABULARY, HIDDEN, generator=generator)
        self.norm = torch.tensor([2.0, -0.5]).repeat(HIDDEN // 2)
        self._write_target()
        self._write_store(dtype, final_norm, samples)
        self._write_mapping()

    def _write_target(self) -> None:
        target = self.directory / "target"
        target.mkdir()
        config = {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": HIDDEN,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": VOCABULARY,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 128,
            "rope_theta": 10000.0,
            "torch_dtype": "float32",
        }
        (target / "config.json").write_text(json.dumps(config))
        weights = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.norm}
        save_file(weights, target / "model.safetensors")

    def _states(self, ids: torch.Tensor, final_norm: str) -> tuple[torch.Tensor, torch.Tensor]:
        after = self.embedding[(ids + 1) % 23]
        final = 4 * after / after.square().sum(-1, keepdim=True).sqrt()
        if final_norm == "pre_norm":
            final = final / self.norm
        aux = torch.stack([self.embedding[ids], after, self.embedding[(ids + 2) % 23]], dim=1)
        return aux, final

    def _write_store(self, dtype: str, final_norm: str, samples: int) -> None:
        properties = StoreProperties(
            model="target",
            layer_ids=LAYERS,
            hidden_size=HIDDEN,
            dtype=dtype,
            final_norm=final_norm,
            target_config_sha256="0",
            tokenizer_sha256="0",
            chat_template_sha256="0",
            engine="none",
            engine_version="0",
        )
        made: list[Sample] = []
        for number in range(samples):
            ids = (torch.arange(10 + number % 17) + 5 * number) % 23
            aux, final = self._states(ids, final_norm)
            if number == self.broken:
                final[-1] = float("nan")
            mask = np.arange(len(ids)) >= 3
            arrays = [_bits(part, dtype) for part in (aux, final)]
            made.append(Sample(f"s{number}", ids.numpy(), mask, *arrays))
        write_store(self.directory / "store", properties, made, 1 << 16, fingerprint="store", inputs={})

    def _write_mapping(self) -> None:
        mapping = Mapping.from_target_ids(np.arange(24), VOCABULARY)
        (self.directory / "mapping").mkdir()
        write_mapping(
            self.directory / "mapping",
            mapping,
            target_model="target",
            coverage=1.0,
            fingerprint="mapping",
            inputs={},
            save_tensors=_save_tensors,
        )

    def spec(self, *, output: str = "a", fingerprint: str = "f", **settings) -> TrainingSpec:
        choices = {
            "steps": 60,
            "batch_tokens": 256,
            "sequence_length": 24,
            "ttt_length": 3,
            "learning_rate": 5e-3,
            "warmup_fraction": 0.1,
            "gradient_clip": 1.0,
            "device": "cpu",
            "threads": 1,
            "log_every": 10,
            "checkpoint_every": 20,
            **settings,
        }
        return TrainingSpec(
            store=str(self.directory / "store"),
            mapping=str(self.directory / "mapping"),
            target_model=str(self.directory / "target"),
            drafter=str(self.directory / output / "drafter"),
            checkpoints=str(self.directory / output / "checkpoints"),
            training=TrainingConfig(**choices),
            fingerprint=fingerprint,
        )


def _bits(states: torch.Tensor, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return states.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    return states.to(getattr(torch, dtype)).numpy()


class Run:
    """The worker as the supervisor starts it: a process of its own in a job's directory."""

    def __init__(self, directory: Path, spec: TrainingSpec | DrafterExportSpec, module: str = "worker") -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        (directory / "spec.json").write_bytes(msgspec.json.encode(spec))
        environment = {
            **os.environ,
            "ROOST_JOB_DIR": str(directory),
            "ROOST_ROOT": str(directory.parent),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.log = (directory / "out.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"remote.agents.training.{module}"],
            env=environment,
            cwd=directory,
            stdout=self.log,
            stderr=self.log,
        )

    def wait(self) -> int:
        code = self.process.wait(timeout=120)
        self.log.close()
        return code

    def events(self) -> list:
        lines = (self.directory / "progress.jsonl").read_bytes().splitlines()
        return [decode_progress_record(line).event for line in lines]

    def result(self) -> JobResult:
        return msgspec.json.decode((self.directory / "result.json").read_bytes(), type=JobResult)

    def failure(self) -> str:
        return json.loads((self.directory / "failure.json").read_text())["message"]

    def text(self) -> str:
        return (self.directory / "out.log").read_text()


@pytest.fixture
def inputs(tmp_path) -> Inputs:
    return Inputs(tmp_path)


@pytest.mark.parametrize(("dtype", "final_norm"), [("float32", "post_norm"), ("bfloat16", "pre_norm")])
def test_it_learns_and_leaves_a_verified_drafter(tmp_path, dtype, final_norm):
    inputs = Inputs(tmp_path, dtype=dtype, final_norm=final_norm)
    run = Run(tmp_path / "job", inputs.spec())
    assert run.wait() == 0, run.text()
    result, steps = run.result(), [event for event in run.events() if isinstance(event, StepLogged)]
    assert [step.step for step in steps] == [10, 20, 30, 40, 50, 60]
    assert steps[0].memory_bytes > 0
    assert steps[0].eta_s > steps[-1].eta_s == 0
    assert steps[-1].loss == pytest.approx(sum(0.8**k * loss for k, loss in enumerate(steps[-1].losses)), rel=1e-5)
    first, second, third = steps[-1].accuracy
    assert steps[-1].acceptance_length == pytest.approx(1 + first + first * second + first * second * third)
    assert steps[-1].loss < steps[0].loss / 2
    assert len(steps[-1].accuracy) == 3
    assert result.summary["steps"] == 60
    assert result.summary["test_acceptance_length"] > 2.5
    drafter = Path(result.outputs[0].path)
    verify(drafter)
    manifest = read_manifest(drafter)
    assert manifest.format == "roost-drafter"
    assert manifest.properties["layer_ids"] == LAYERS
    assert set(manifest.inputs) == {"store", "mapping", "target"}
    config = json.loads((drafter / "config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_stopped_training_resumes_and_ends_where_an_unbroken_one_does(inputs, tmp_path, optimizer):
    whole = Run(tmp_path / "whole", inputs.spec(output="whole", optimizer=optimizer))
    assert whole.wait() == 0, whole.text()

    broken = inputs.spec(output="broken", steps=60, checkpoint_every=1, optimizer=optimizer)
    first = Run(tmp_path / "first", broken)
    wait_for_checkpoint(first)
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143, first.text()
    stopped_at = max(event.step for event in first.events() if isinstance(event, CheckpointSaved))
    assert 0 < stopped_at < 60
    second = Run(tmp_path / "second", broken)
    assert second.wait() == 0, second.text()
    assert f"resumed from step {stopped_at}" in second.text()

    # Bit for bit; of the exported drafters only that of the longer acceptance is the same, and they had other steps to choose from.
    weights = [
        torch.load(tmp_path / name / "checkpoints/step-00000060/state.pt")["drafter"] for name in ("whole", "broken")
    ]
    for name, tensor in weights[0].items():
        assert torch.equal(weights[1][name], tensor), name


def wait_for_checkpoint(run: Run) -> None:
    deadline = time.monotonic() + 60
    progress = run.directory / "progress.jsonl"
    while not (progress.exists() and b"checkpoint_saved" in progress.read_bytes()):
        assert run.process.poll() is None, run.text()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_drafter_that_did_best_on_held_out_text_is_kept_and_exported(inputs, tmp_path):
    """With a rate that grows until it tears the drafter apart, the last one is not the best."""
    spec = inputs.spec(
        steps=60, checkpoint_every=5, checkpoints_kept=1, learning_rate=0.5, warmup_fraction=1.0, gradient_clip=1e9
    )
    run = Run(tmp_path / "job", spec)
    assert run.wait() == 0, run.text()
    measured = [event for event in run.events() if isinstance(event, DrafterMeasured)]
    assert [event.step for event in measured] == list(range(5, 65, 5))
    best = max(measured, key=lambda event: (event.acceptance_length, event.step))
    assert best.best
    assert best.step < 60
    summary = run.result().summary
    assert (summary["steps"], summary["exported_step"]) == (60, best.step)
    assert summary["validation_acceptance_length"] == best.acceptance_length
    assert 1 <= summary["test_acceptance_length"] <= 4, "on text that nothing was chosen by"
    checkpoints = tmp_path / "a" / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == sorted({f"step-{best.step:08d}", "step-00000060"})
    kept = torch.load(checkpoints / f"step-{best.step:08d}" / "state.pt")["drafter"]
    exported = load_file(tmp_path / "a" / "drafter" / "model.safetensors")
    assert all(torch.equal(exported[name], weight) for name, weight in kept.items())


def test_a_checkpoint_that_a_stop_left_unmeasured_is_measured_by_whoever_goes_on(inputs, tmp_path):
    spec = inputs.spec(steps=40, checkpoint_every=20)
    first = Run(tmp_path / "first", spec)
    assert first.wait() == 0, first.text()
    for path in (tmp_path / "a" / "checkpoints").iterdir():
        manifest = read_manifest(path)
        write_manifest(path, msgspec.structs.replace(manifest, properties={"step": manifest.properties["step"]}))
    shutil.rmtree(tmp_path / "a" / "drafter")
    second = Run(tmp_path / "second", spec)
    assert second.wait() == 0, second.text()
    assert [event.step for event in second.events() if isinstance(event, DrafterMeasured)] == [40]
    assert second.result().summary["exported_step"] == 40


def test_a_kill_between_save_and_measurement_changes_nothing_of_what_comes_out(tmp_path):
    inputs = Inputs(tmp_path, samples=400)
    settings = {"steps": 30, "checkpoint_every": 3, "checkpoints_kept": 30}
    whole = Run(tmp_path / "whole", inputs.spec(output="unbroken", **settings))
    assert whole.wait() == 0, whole.text()
    spec = inputs.spec(output="broken", **settings)
    killed = Run(tmp_path / "killed", spec)
    caught = _kill_between_save_and_measurement(killed, Path(spec.checkpoints))
    second = Run(tmp_path / "second", spec)
    assert second.wait() == 0, second.text()
    assert f"resumed from step {caught}" in second.text()
    measured = [event.step for event in second.events() if isinstance(event, DrafterMeasured)]
    assert measured == list(range(caught, 33, 3))
    told = [run.result().summary for run in (whole, second)]
    figures = ("exported_step", "validation_acceptance_length", "test_acceptance_length", "loss")
    assert [told[0][name] for name in figures] == [told[1][name] for name in figures]
    made = [load_file(tmp_path / name / "drafter" / "model.safetensors") for name in ("unbroken", "broken")]
    assert all(torch.equal(made[1][name], weight) for name, weight in made[0].items())


def _kill_between_save_and_measurement(run: Run, checkpoints: Path) -> int:
    """Kill the worker while a checkpoint lies there that was not measured; its step."""
    deadline = time.monotonic() + 60
    while True:
        assert run.process.poll() is None, "it ended before it was caught"
        assert time.monotonic() < deadline
        newest = max(checkpoints.glob("step-????????"), default=None)
        if newest is None or "acceptance" in read_manifest(newest).properties:
            continue
        run.process.send_signal(signal.SIGSTOP)
        newest = max(checkpoints.glob("step-????????"))
        if "acceptance" not in read_manifest(newest).properties:
            run.process.kill()
            run.wait()
            return int(newest.name.removeprefix("step-"))
        run.process.send_signal(signal.SIGCONT)


def test_a_batch_that_is_not_finite_is_saved_and_its_sample_named(tmp_path):
    inputs = Inputs(tmp_path, broken=1)
    run = Run(tmp_path / "job", inputs.spec(checkpoint_every=1000))
    assert run.wait() == 1
    assert "the stored states of the samples [1] hold NaN or infinity" in run.failure()
    (saved,) = (tmp_path / "a" / "checkpoints").glob("not-finite-*")
    assert f'load_file("{saved}")' in run.failure()
    tensors = load_file(saved)
    assert tensors["batch_0.final_hidden_states"].isnan().any()
    assert tensors["batch_0.input_ids"].shape == tensors["batch_0.loss_mask"].shape
    assert tensors["drafter.fc.weight"].isfinite().all()
    with safe_open(saved, "pt") as file:
        metadata = file.metadata()
    assert int(metadata["step"]) >= 1
    assert [1, 0, 11] in json.loads(metadata["windows"])[0]


def test_a_damaged_checkpoint_is_passed_over_and_another_trainings_is_refused(inputs, tmp_path):
    run = Run(tmp_path / "job", inputs.spec(steps=40))
    assert run.wait() == 0, run.text()
    checkpoints = tmp_path / "a" / "checkpoints"
    assert newest_checkpoint(checkpoints, "f") == checkpoints / "step-00000040"
    (checkpoints / "step-00000040" / "state.pt").write_bytes(b"half")
    assert newest_checkpoint(checkpoints, "f") == checkpoints / "step-00000020"
    other = Run(tmp_path / "other", inputs.spec(steps=40, fingerprint="g", output="a"))
    assert other.wait() == 5
    assert "another training" in other.failure()


def test_a_drafter_that_is_there_already_is_the_result(inputs, tmp_path):
    spec = inputs.spec(steps=5)
    first = Run(tmp_path / "first", spec)
    assert first.wait() == 0, first.text()
    again = Run(tmp_path / "again", spec)
    assert again.wait() == 0, again.text()
    assert again.result() == first.result()


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"learning_rate": 1e30, "gradient_clip": 1e30}, 1, "the loss became"),
        ({"drafter": DrafterConfig(num_attention_heads=5)}, 5, "5 heads"),
        ({"drafter": DrafterConfig(num_attention_heads=6)}, 5, "a hidden size of 32 would be served by no engine"),
    ],
)
def test_what_cannot_go_on_ends_with_the_reason(inputs, tmp_path, settings, code, words):
    run = Run(tmp_path / "job", inputs.spec(**settings))
    assert run.wait() == code
    assert words in run.failure()
    assert not (tmp_path / "a" / "drafter").exists()


def test_a_store_of_another_model_is_refused(inputs, tmp_path):
    config = tmp_path / "target" / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 32', '"hidden_size": 64'))
    run = Run(tmp_path / "job", inputs.spec())
    assert run.wait() == 5
    assert "another model" in run.failure()
