"""Plans on a real directory: what will be done, what stands in the way, and a fingerprint over all of it."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remote.artifacts.manifest import Manifest, write_manifest
from remote.jobs import locks, vault
from remote.jobs.secret_store import SecretStore
from remote.pipeline.config import load_run
from remote.pipeline.fingerprints import Fingerprints
from remote.pipeline.plan import draw_plan, plan_run
from remote.pipeline.reuse import mark_begun
from remote.protocol.progress import STAGES
from remote.protocol.reports import RunPlan, StagePlan

Plan = Callable[..., RunPlan]


@pytest.fixture
def plan(root: Path, python: str, document: str) -> Plan:
    return lambda **overrides: plan_run(
        document, {key.replace("__", "."): value for key, value in overrides.items()}, root=root, python=python
    )


@pytest.fixture
def marks(root: Path, python: str, document: str) -> Fingerprints:
    return draw_plan(load_run(document), root=root, python=python)[1].fingerprints


def stage(plan: RunPlan, name: str) -> StagePlan:
    return next(stage for stage in plan.stages if stage.stage == name)


def publish(directory: Path, fingerprint: str, content: bytes = b"content") -> None:
    directory.mkdir(parents=True)
    (directory / "file").write_bytes(content)
    manifest = Manifest(
        format="test",
        version=1,
        fingerprint=fingerprint,
        inputs={},
        producer="test",
        created_at=time.time(),
        files=[],
        properties={},
    )
    write_manifest(directory, manifest, ["file"])


def publish_all(root: Path, marks: Fingerprints) -> None:
    run = root / "runs/trial"
    publish(run / "store", marks.extraction)
    publish(run / "mapping", marks.vocabulary)
    publish(run / "drafter", marks.training)
    publish(run / "evaluation-drafter", marks.drafter_report)
    publish(run / "evaluation-baseline", marks.baseline_report)
    publish(run / "verdict", marks.verdict)


def test_a_fresh_run_does_everything_in_order(plan: Plan, root: Path):
    found = plan()
    assert found.problems == []
    assert tuple(stage.stage for stage in found.stages) == STAGES
    assert {stage.action for stage in found.stages} == {"run"}
    assert found.directory == str(root / "runs/trial")
    assert stage(found, "extraction").output == str(root / "runs/trial/store")
    assert "remote.agents.extraction.worker" in stage(found, "extraction").command
    assert "--return-aux-hidden-state-layer-ids 0 1 2" in " ".join(stage(found, "server").command)
    assert f"--speculative-draft-model-path {root}/runs/trial/drafter" in " ".join(stage(found, "serving").command)


def test_the_bytes_are_those_of_the_tensors(plan: Plan):
    found = plan()
    # "Say it." and the answer: a third of the bytes, rounded up, 8 for each turn, 32 for the conversation.
    tokens = sum(-(-(7 + len(answer)) // 3) + 16 + 32 for answer in ("one two three", "four five", "six"))
    assert stage(found, "extraction").bytes_needed == tokens * ((3 + 1) * 64 * 2 + 9)
    fc, attention, mlp, head, norms = (
        3 * 64 * 64,
        2 * 64 * (2 + 2 * 2) * 32 + 2 * 32 * 64,
        3 * 64 * 128,
        32 * 64,
        4 * 64,
    )
    assert stage(found, "training").bytes_needed == (fc + attention + mlp + head + norms) * (4 * 12 + 4)
    assert found.bytes_needed == sum(stage.bytes_needed or 0 for stage in found.stages)
    assert found.bytes_free > found.bytes_needed


def test_max_samples_and_max_length_bound_the_estimate(plan: Plan):
    one = stage(plan(data__max_samples="1"), "extraction").bytes_needed
    assert stage(plan(data__max_samples="1", data__max_length="10"), "extraction").bytes_needed == 10 * (4 * 64 * 2 + 9)
    assert one is not None
    assert one < (stage(plan(), "extraction").bytes_needed or 0)


def test_what_is_valid_is_skipped_with_the_servers_it_needed(plan: Plan, root: Path, marks: Fingerprints):
    publish(root / "runs/trial/store", marks.extraction)
    found = plan()
    assert [stage.stage for stage in found.stages if stage.action == "skip"] == ["server", "extraction"]
    assert stage(found, "extraction").bytes_needed == 0
    assert stage(found, "extraction").command == []
    assert found.fingerprint != plan(data__max_samples="2").fingerprint


def test_a_run_that_is_done_does_nothing_again(plan: Plan, root: Path, marks: Fingerprints):
    publish_all(root, marks)
    found = plan()
    assert [stage.stage for stage in found.stages if stage.action != "skip"] == ["preflight"]
    assert found.bytes_needed == 0


def test_another_setting_redoes_what_depends_on_it_and_nothing_before(plan: Plan, root: Path, marks: Fingerprints):
    publish_all(root, marks)
    found = plan(training__steps="5")
    assert [stage.stage for stage in found.stages if stage.action == "run"] == [
        "preflight",
        "training",
        "serving",
        "evaluation",
        "verdict",
    ]
    assert "set aside: it was made of other inputs" in stage(found, "training").reason
    assert stage(plan(verdict__minimum_speedup="1.5"), "evaluation").action == "skip"


@pytest.mark.parametrize(
    "comfort",
    [
        {"engine__memory_fraction": "0.5"},
        {"engine__ready_timeout_s": "7.0"},
        {"extraction__concurrency": "3"},
        {"training__log_every": "1"},
        {"training__threads": "1"},
        {"training__ranks": "2"},
    ],
)
def test_comfort_does_not_throw_anything_away(plan: Plan, root: Path, marks: Fingerprints, comfort):
    publish_all(root, marks)
    assert all(stage.action == "skip" for stage in plan(**comfort).stages[1:])


def test_a_damaged_store_is_not_believed(plan: Plan, root: Path, marks: Fingerprints):
    publish_all(root, marks)
    (root / "runs/trial/store/file").write_bytes(b"shorter"[:3])
    assert stage(plan(), "extraction").action == "run"
    assert "file has 3 bytes instead of 7" in stage(plan(), "extraction").reason


def test_other_conversations_make_another_store(plan: Plan, root: Path, marks: Fingerprints):
    publish_all(root, marks)
    train = root / "conversations/train.jsonl"
    train.write_text(train.read_text().replace("six", "ten"))
    assert stage(plan(), "extraction").action == "run"


def test_a_training_with_a_checkpoint_is_resumed(plan: Plan, root: Path, marks: Fingerprints):
    publish(root / "runs/trial/checkpoints/step-00000002", marks.training)
    assert stage(plan(), "training").action == "resume"
    assert stage(plan(training__steps="9"), "training").action == "run"


def test_a_store_that_was_begun_is_resumed_only_by_the_same_run(plan: Plan, root: Path, marks: Fingerprints):
    store = root / "runs/trial/store"
    store.mkdir(parents=True)
    (store / "shard-00000.safetensors").write_bytes(b"x")
    assert "never finished" in stage(plan(), "extraction").reason
    mark_begun(store, marks.extraction)
    assert stage(plan(), "extraction").action == "resume"
    assert stage(plan(extraction__layer_ids="[1, 2]"), "extraction").action == "run"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"target__model": "models/none"}, "there is no model at"),
        ({"data__train": "conversations/none.jsonl"}, "there are no conversations at"),
        ({"extraction__layer_ids": "[0, 2]"}, "extraction.layer_ids: layer ids must lie in [1, 3]"),
        ({"extraction__layer_ids": "[2, 4]"}, "extraction.layer_ids: layer ids must lie in [1, 3]"),
        ({"extraction__layer_ids": "[3, 2]"}, "extraction.layer_ids: layer ids must ascend"),
        ({"vocabulary__draft_vocab_size": "513"}, "the target knows only 512 tokens"),
        ({"vocabulary__source": "mappings/none"}, "there is no mapping at"),
        ({"data__evaluation": "conversations/train.jsonl"}, "are the same conversations"),
        ({"evaluation__prompts": "3"}, "holds 2 prompts, but evaluation.prompts asks for 3"),
        ({"evaluation__concurrency": "[1, 3]"}, "3 requests at a time, but evaluation.prompts is only 2"),
        ({"verdict__concurrency": "[4]"}, "verdict.concurrency names 4, which evaluation.concurrency does not measure"),
        ({"training__ranks": "2"}, "training.ranks is 2, but training.batches_per_step, what they share, is 1"),
        (
            {"training__hosts__count": "2", "training__hosts__rendezvous": '"ten.example:29500"'},
            "training.ranks is 1 on each of 2 hosts, but training.batches_per_step",
        ),
        (
            {"training__hosts__count": "2", "training__batches_per_step": "2"},
            "training.hosts.rendezvous must be HOST:PORT of the first of the 2 hosts",
        ),
        ({"training__hosts__number": "1"}, "training.hosts.number is 1, but they are counted from 0 to 0"),
        ({"training__drafter__architecture": '"mla"'}, "the config names not all of q_lora_rank"),
        ({"evaluation__concurrency": "[2, 1]"}, "evaluation.concurrency must ascend"),
        ({"engine__max_running_requests": "1"}, "2 requests at a time, but engine.max_running_requests is 1"),
        ({"speculation__draft_tokens": "7"}, "draft_tokens must be num_steps + 1 = 4"),
        ({"engine__python": "/nowhere/python"}, "engine.python: /nowhere/python cannot be run"),
        ({"engine__flags__max-total-token": "9"}, "did you mean --max-total-tokens?"),
        ({"engine__python": "/bin/false"}, "/bin/false cannot import sglang"),
    ],
)
def test_what_stands_in_the_way_is_said_before_anything_begins(plan: Plan, overrides, said):
    found = plan(**overrides)
    assert len(found.problems) == 1
    assert said in found.problems[0]
    assert len(found.stages) == len(STAGES)


def test_a_disk_that_is_too_small_is_a_problem(plan: Plan):
    (problem,) = plan(
        training__drafter__intermediate_size=str(1 << 40), training__drafter__num_attention_heads="64"
    ).problems
    assert "the run will write about" in problem


def test_conversations_that_the_server_would_refuse_are_a_risk(plan: Plan):
    def told(context: str, length: str) -> list[str]:
        risks = plan(engine__context_length=context, data__max_length=length).risks
        return [risk for risk in risks if "more than" in risk]

    (risk,) = told("256", "250")
    assert "conversations of more than 249 tokens would be quarantined" in risk
    assert told("256", "249") == []


def test_conversations_that_are_none_are_named_by_their_line(plan: Plan, root: Path):
    train = root / "conversations/train.jsonl"
    train.write_text(train.read_text() + '{"id": "c", "turns": []}\n')
    (problem,) = plan().problems
    assert f"{train}, line 4, is no conversation" in problem


def test_the_model_of_a_multimodal_target_is_its_text_part(plan: Plan, root: Path):
    path = root / "models/target/config.json"
    text = json.loads(path.read_text())
    path.write_text(json.dumps({"architectures": ["KimiK25ForConditionalGeneration"], "text_config": text}))
    assert "SGLang cannot capture layer 1" in plan().problems[0]
    assert plan(extraction__layer_ids="[2, 3]").problems == []


def test_a_rope_that_no_drafter_is_served_with_is_said_before_anything_is_captured(plan: Plan, root: Path):
    path = root / "models/target/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": {"type": "longrope"}}))
    (problem,) = plan().problems
    assert "the target's rope type is 'longrope'" in problem


def test_variables_of_the_template_make_another_store_and_other_reports(root: Path, python: str, document: str) -> None:
    def marks(text: str) -> Fingerprints:
        return draw_plan(load_run(text), root=root, python=python)[1].fingerprints

    before, same = marks(document), marks(f"{document}\n[target.chat_template_kwargs]\n")
    other = marks(f"{document}\n[target.chat_template_kwargs]\nthinking = false\n")
    assert same == before
    assert not set(other) & set(before)


def test_the_same_plan_has_the_same_fingerprint(plan: Plan):
    assert plan().fingerprint == plan().fingerprint
    assert plan().fingerprint != plan(training__seed="1").fingerprint


def test_what_changes_the_pace_is_measured_again_and_nothing_else(plan: Plan, root: Path, marks: Fingerprints):
    publish_all(root, marks)
    found = plan(engine__environment__OMP_NUM_THREADS='"2"')
    assert [stage.stage for stage in found.stages if stage.action == "run"] == [
        "preflight",
        "serving",
        "evaluation",
        "verdict",
    ]


def test_a_token_in_the_run_file_is_a_problem(plan: Plan) -> None:
    problems = plan(engine__environment='{ HF_TOKEN = "hf_0123456789" }').problems
    assert any("roost secrets set HF_TOKEN" in problem for problem in problems)
    assert not any("hf_0123456789" in problem for problem in problems)


def test_a_token_that_a_restart_has_lost_is_a_problem_until_it_is_set_or_removed(plan: Plan, root: Path) -> None:
    secrets = SecretStore(root, locks.lock_directory(root))
    secrets.set("HF_TOKEN", "hf_0123456789", actor="ann", op_id="set-1")
    assert plan().problems == []
    shutil.rmtree(vault.directory_in_memory(root))
    assert ["was lost when the host restarted" in problem for problem in plan().problems] == [True]
    secrets.remove("HF_TOKEN", op_id="remove-1")
    assert plan().problems == []


VLLM = '{ name = "vllm", device = "cpu" }'


def test_the_engine_that_serves_is_shown_and_only_what_it_measures_is_made_anew(
    plan: Plan, root: Path, marks: Fingerprints
):
    publish_all(root, marks)
    found = plan(serving=VLLM)
    assert found.problems == []
    assert [stage.stage for stage in found.stages if stage.action == "run"] == [
        "preflight",
        "serving",
        "evaluation",
        "verdict",
    ]
    assert stage(found, "serving").reason == "serves the next stage; with vllm"
    assert "vllm.entrypoints.openai.api_server" in stage(found, "serving").command
    assert "sglang.launch_server" in stage(found, "server").command


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"serving__python": "/bin/false"}, "/bin/false cannot import vllm. Name the interpreter of the engine's"),
        ({"serving__flags__max-num-seq": "9"}, "serving.flags: --max-num-seq is no option of the installed engine"),
        ({"serving__max_running_requests": "1"}, "but serving.max_running_requests is 1"),
        ({"serving__environment": '{ HF_TOKEN = "hf_0123456789" }'}, "serving.environment holds HF_TOKEN"),
    ],
)
def test_what_stands_in_the_way_of_the_engine_that_serves_is_said_by_its_own_keys(plan: Plan, overrides, said):
    (problem,) = plan(serving=VLLM, **overrides).problems
    assert said in problem
