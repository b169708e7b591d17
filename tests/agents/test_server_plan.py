"""The engine's command line and environment, from the spec alone."""

import json
from pathlib import Path

import pytest

from remote.agents.server.contract import EngineCommand
from remote.agents.server.plan import engine_command, read_model_config
from remote.engines.paths import CAPTURE_SPOOL, SGLANG_CAPTURE, SGLANG_CPU
from remote.errors import Precondition
from remote.protocol.run import EngineConfig, FlagValue, SpeculationConfig
from remote.protocol.specs import Capture, DrafterServing, ServerSpec

LLAMA = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 30}
KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {"num_hidden_layers": 61}}
CPU = EngineConfig(device="cpu", dtype="float32", attention_backend="torch_native")
CAPTURE = Capture(layer_ids=[2, 15, 27], spool_directory="/spool")


def command(spec: ServerSpec, model_config: dict[str, object] = LLAMA) -> EngineCommand:
    return engine_command(spec, python="/opt/python", port=4321, model_config=model_config)


def values(argv: list[str], flag: str) -> list[str]:
    """What follows `flag`, up to the next option."""
    rest = argv[argv.index(flag) + 1 :]
    return rest[: next((i for i, word in enumerate(rest) if word.startswith("--")), len(rest))]


def test_the_server_is_bound_to_loopback_and_to_the_given_port():
    argv = command(ServerSpec(model="/m", engine=EngineConfig())).argv
    assert argv[:3] == ["/opt/python", "-m", "sglang.launch_server"]
    assert values(argv, "--host") == ["127.0.0.1"]
    assert values(argv, "--port") == ["4321"]
    assert "--enable-metrics" in argv


def test_capturing_takes_the_layers_in_the_engines_numbering_and_every_row():
    plan = command(ServerSpec(model="/m", engine=CPU, capture=CAPTURE))
    assert values(plan.argv, "--return-aux-hidden-state-layer-ids") == ["1", "14", "26"]
    assert values(plan.argv, "--speculative-algorithm") == ["EAGLE3"]
    assert {
        "--enable-return-aux-hidden-states",
        "--disable-radix-cache",
        "--disable-prefill-cuda-graph",
        "--disable-decode-cuda-graph",
    } <= set(plan.argv)
    assert "--enable-mixed-chunk" not in plan.argv
    assert plan.environment["ROOST_CAPTURE_LAYER_IDS"] == "2,15,27"
    assert plan.environment["ROOST_CAPTURE_SPOOL"] == "/spool"
    assert plan.environment["ROOST_CAPTURE_MEMORY_BYTES"] == str(4 << 30)
    assert {str(SGLANG_CAPTURE), str(CAPTURE_SPOOL)} <= set(plan.environment["PYTHONPATH"].split(":"))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("disable-radix-cache", False),
        ("disable-prefill-cuda-graph", False),
        ("enable-mixed-chunk", True),
        ("enable-dp-attention", True),
        ("enable-two-batch-overlap", True),
        ("pp-size", 2),
        ("dp-size", 8),
        ("decode-context-parallel-size", "2"),
    ],
)
def test_flags_under_which_rows_would_be_missing_are_refused_while_capturing(flag: str, value: FlagValue):
    engine = EngineConfig(flags={flag: value})
    command(ServerSpec(model="/m", engine=engine))
    with pytest.raises(Precondition, match=f"engine.flags.{flag}"):
        command(ServerSpec(model="/m", engine=engine, capture=CAPTURE))


def test_kimi_keeps_its_layer_ids():
    capture = Capture(layer_ids=[3, 31, 59], spool_directory="/spool")
    argv = command(ServerSpec(model="/m", engine=EngineConfig(), capture=capture), KIMI).argv
    assert values(argv, "--return-aux-hidden-state-layer-ids") == ["3", "31", "59"]


def test_layers_that_cannot_be_captured_are_refused_before_the_launch():
    capture = Capture(layer_ids=[0, 15], spool_directory="/spool")
    with pytest.raises(Precondition, match="layer ids must lie in"):
        command(ServerSpec(model="/m", engine=CPU, capture=capture))


def test_a_drafter_is_served_with_its_speculation():
    speculation = SpeculationConfig(num_steps=2, top_k=1, draft_tokens=3)
    argv = command(ServerSpec(model="/m", engine=CPU, drafter=DrafterServing(model="/d", speculation=speculation))).argv
    assert values(argv, "--speculative-algorithm") == ["EAGLE3"]
    assert values(argv, "--speculative-draft-model-path") == ["/d"]
    assert values(argv, "--speculative-num-steps") == ["2"]
    assert values(argv, "--speculative-eagle-topk") == ["1"]
    assert values(argv, "--speculative-num-draft-tokens") == ["3"]


def test_plain_serving_neither_speculates_nor_captures():
    plan = command(ServerSpec(model="/m", engine=CPU))
    assert not [word for word in plan.argv if "speculative" in word or "hidden" in word]
    assert "ROOST_CAPTURE_SPOOL" not in plan.environment
    assert plan.environment["PYTHONPATH"] == f"{SGLANG_CPU}:{SGLANG_CAPTURE}"


def test_a_processor_serves_through_the_stand_in_with_one_thread():
    plan = command(ServerSpec(model="/m", engine=CPU))
    assert values(plan.argv, "--device") == ["cpu"]
    assert values(plan.argv, "--prefill-attention-backend") == ["torch_native"]
    assert values(plan.argv, "--decode-attention-backend") == ["torch_native"]
    assert plan.environment["SGLANG_USE_CPU_ENGINE"] == "1"
    assert plan.environment["OMP_NUM_THREADS"] == "1"


def test_a_gpu_serves_without_the_stand_in():
    plan = command(ServerSpec(model="/m", engine=EngineConfig(tensor_parallel_size=8, memory_fraction=0.8)))
    assert values(plan.argv, "--tp-size") == ["8"]
    assert values(plan.argv, "--mem-fraction-static") == ["0.8"]
    assert "SGLANG_USE_CPU_ENGINE" not in plan.environment
    assert str(SGLANG_CPU) not in plan.environment["PYTHONPATH"]


def test_the_run_files_flags_have_the_last_word():
    engine = EngineConfig(
        flags={
            "enable-metrics": False,
            "trust-remote-code": True,
            "cuda-graph-bs-decode": ["1", "2"],
            "dtype": "float16",
        }
    )
    argv = command(ServerSpec(model="/m", engine=engine)).argv
    assert "--enable-metrics" not in argv
    assert "--trust-remote-code" in argv
    assert values(argv, "--cuda-graph-bs-decode") == ["1", "2"]
    assert values(argv, "--dtype") == ["float16"]


def test_nobody_but_the_host_itself_ever_reaches_an_engine():
    argv = command(ServerSpec(model="/m", engine=EngineConfig(flags={"host": "0.0.0.0", "port": 9}))).argv
    assert values(argv, "--host") == ["127.0.0.1"]
    assert "9" not in argv


def test_the_run_files_environment_has_the_last_word():
    engine = EngineConfig(device="cpu", environment={"OMP_NUM_THREADS": "4", "NCCL_P2P_LEVEL": "SYS"})
    environment = command(ServerSpec(model="/m", engine=engine)).environment
    assert (environment["OMP_NUM_THREADS"], environment["NCCL_P2P_LEVEL"]) == ("4", "SYS")


def test_the_environment_survives_the_engines_process_titles():
    assert command(ServerSpec(model="/m", engine=CPU)).environment["SPT_NOENV"] == "1"


def test_the_plugin_can_be_found_by_its_entry_point():
    (metadata,) = SGLANG_CAPTURE.glob("*.dist-info")
    assert "roost_capture = roost_sglang_capture:register" in (metadata / "entry_points.txt").read_text()
    plugins = command(ServerSpec(model="/m", engine=CPU, capture=CAPTURE)).environment["SGLANG_PLUGINS"]
    assert plugins == "roost_capture"


def test_a_directory_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(Precondition, match=r"no config\.json"):
        read_model_config(str(tmp_path))
    (tmp_path / "config.json").write_text("{half")
    with pytest.raises(Precondition, match="no JSON"):
        read_model_config(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_model_config(str(tmp_path)) == LLAMA
