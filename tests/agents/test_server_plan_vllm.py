"""vLLM's command line and environment, from the spec alone."""

import json

import pytest

from remote.agents.server.contract import EngineCommand
from remote.agents.server.plan import engine_command
from remote.engines.paths import CAPTURE_SPOOL, VLLM_CAPTURE
from remote.errors import Precondition
from remote.protocol.run import EngineConfig, FlagValue, SpeculationConfig
from remote.protocol.specs import Capture, DrafterServing, ServerSpec

CAPTURE = Capture(layer_ids=[1, 15, 29], spool_directory="/spool")
CPU = EngineConfig(name="vllm", device="cpu", dtype="float32")


def command(spec: ServerSpec) -> EngineCommand:
    model_config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 30}
    return engine_command(spec, python="/opt/python", port=4321, model_config=model_config)


def test_the_server_is_bound_to_loopback_and_to_the_given_port():
    plan = command(ServerSpec(model="/m", engine=EngineConfig(name="vllm", python="/vllm/python")))
    assert plan.argv[:3] == ["/vllm/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert (plan.flags["model"], plan.flags["host"], plan.flags["port"]) == ("/m", "127.0.0.1", 4321)


def test_sizes_have_vllms_names():
    engine = EngineConfig(
        name="vllm",
        tensor_parallel_size=8,
        memory_fraction=0.9,
        context_length=32768,
        max_running_requests=16,
        attention_backend="TRITON_MLA",
    )
    assert {
        "tensor-parallel-size": 8,
        "gpu-memory-utilization": 0.9,
        "max-model-len": 32768,
        "max-num-seqs": 16,
        "attention-backend": "TRITON_MLA",
        "dtype": "bfloat16",
    }.items() <= command(ServerSpec(model="/m", engine=engine)).flags.items()


def test_a_drafter_is_served_with_its_speculation_and_every_answer_counts_its_verifications():
    drafter = DrafterServing(model="/d", speculation=SpeculationConfig(num_steps=2, top_k=1, draft_tokens=3))
    flags = command(ServerSpec(model="/m", engine=CPU, drafter=drafter)).flags
    assert json.loads(str(flags["speculative-config"])) == {
        "method": "eagle3",
        "model": "/d",
        "num_speculative_tokens": 2,
    }
    assert flags["per-request-spec-decode-metrics"] == "summary"
    assert not [name for name in command(ServerSpec(model="/m", engine=CPU)).flags if "spec" in name]


def test_a_tree_is_refused_before_the_launch():
    tree = DrafterServing(model="/d", speculation=SpeculationConfig(num_steps=3, top_k=2, draft_tokens=6))
    with pytest.raises(Precondition, match="one chain of tokens"):
        command(ServerSpec(model="/m", engine=CPU, drafter=tree))


def test_capturing_takes_the_layers_and_the_state_before_the_norm_through_our_connector():
    plan = command(ServerSpec(model="/m", engine=CPU, capture=CAPTURE))
    speculation = json.loads(str(plan.flags["speculative-config"]))
    assert speculation["method"] == "extract_hidden_states"
    assert speculation["draft_model_config"]["hf_config"] == {"eagle_aux_hidden_state_layer_ids": [1, 15, 29, 30]}
    transfer = json.loads(str(plan.flags["kv-transfer-config"]))
    assert transfer["kv_connector_module_path"] == "roost_vllm_capture.connector"
    assert "--no-enable-prefix-caching" in plan.argv
    assert plan.environment["PYTHONPATH"] == f"{VLLM_CAPTURE}:{CAPTURE_SPOOL}"
    assert (plan.environment["ROOST_CAPTURE_SPOOL"], plan.environment["ROOST_CAPTURE_LAYER_IDS"]) == (
        "/spool",
        "1,15,29",
    )


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("enable-prefix-caching", True),
        ("no-enable-prefix-caching", False),
        ("decode-context-parallel-size", 2),
        ("pipeline-parallel-size", "2"),
    ],
)
def test_flags_under_which_rows_would_be_missing_are_refused_while_capturing(flag: str, value: FlagValue):
    engine = EngineConfig(name="vllm", flags={flag: value})
    command(ServerSpec(model="/m", engine=engine))
    with pytest.raises(Precondition, match=f"engine.flags.{flag}"):
        command(ServerSpec(model="/m", engine=engine, capture=CAPTURE))


def test_what_vllm_cannot_capture_is_refused_before_the_launch():
    with pytest.raises(Precondition, match="layer ids must lie in"):
        command(ServerSpec(model="/m", engine=CPU, capture=Capture(layer_ids=[0, 1], spool_directory="/spool")))
    with pytest.raises(Precondition, match="final norm, and that of Gemma3ForCausalLM"):
        engine_command(
            ServerSpec(model="/m", engine=CPU, capture=CAPTURE),
            python="/opt/python",
            port=4321,
            model_config={"architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 30},
        )


def test_a_processor_serves_with_one_thread_and_a_small_cache():
    plan = command(ServerSpec(model="/m", engine=CPU))
    assert plan.flags["enforce-eager"] is True
    assert plan.environment["OMP_NUM_THREADS"] == "1"
    assert plan.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    on_a_gpu = command(ServerSpec(model="/m", engine=EngineConfig(name="vllm")))
    assert "enforce-eager" not in on_a_gpu.flags
    assert not [name for name in on_a_gpu.environment if "CPU" in name or "OMP" in name]


def test_nothing_is_sent_anywhere_and_the_environment_survives_the_engines_process_titles():
    environment = command(ServerSpec(model="/m", engine=EngineConfig(name="vllm"))).environment
    assert (environment["VLLM_NO_USAGE_STATS"], environment["HF_HUB_OFFLINE"], environment["SPT_NOENV"]) == ("1",) * 3
    assert environment["PYTHONPATH"] == ""


def test_the_run_file_has_the_last_word():
    engine = EngineConfig(
        name="vllm",
        device="cpu",
        flags={"enforce-eager": False, "port": 9},
        environment={"VLLM_CPU_KVCACHE_SPACE": "4"},
    )
    plan = command(ServerSpec(model="/m", engine=engine))
    assert "--enforce-eager" not in plan.argv
    assert plan.argv.count("--port") == 1
    assert plan.environment["VLLM_CPU_KVCACHE_SPACE"] == "4"
