"""What an engine's log says about its launch, and about its end."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.server.contract import EngineKind
from remote.agents.server.plan import KINDS
from remote.agents.server.startup import explain_death, later_phase

SGLANG, VLLM = KINDS["sglang"], KINDS["vllm"]
GOLDEN = Path(__file__).resolve().parents[1] / "golden/server"

SCHEDULER_CRASH = """[2026-12-01 10:00:00] Load weight begin. avail mem=20.00 GB
[2026-12-01 10:00:01] Scheduler hit an exception: Traceback (most recent call last):
{}
[2026-12-01 10:00:01] Received sigquit from a child process. It usually means the child failed.
"""


@pytest.mark.parametrize(
    ("line", "meaning", "advice"),
    [
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "ran out of memory",
            "memory_fraction",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.", "ran out of memory", "memory_fraction"),
        ("Prefill out of memory. Try to lower your batch size.", "too small", "max_running_requests"),
        ("[Errno 98] error while attempting to bind on address: address already in use", "port", "again"),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
            "checkpoint's file",
            "cut short",
        ),
        (
            "AssertionError: Attempted to load weight (torch.Size([128])) into parameter (torch.Size([96]))",
            "does not fit",
            "config.json",
        ),
        ("RuntimeError: NCCL error: unhandled cuda error", "NCCL", "NCCL_P2P_DISABLE=1"),
        ("launch_server.py: error: unrecognized arguments: --no-such-flag", "option", "engine.flags"),
        ("ModuleNotFoundError: No module named 'sglang'", "package is missing", "install"),
    ],
)
def test_a_known_cause_is_named_with_what_to_do(line: str, meaning: str, advice: str):
    message, hint = explain_death(-9, SCHEDULER_CRASH.format(line).encode(), SGLANG.causes, "engine")
    assert meaning in message
    assert line in message
    assert advice in hint


def test_what_mends_it_is_named_where_the_run_file_has_it():
    for kind in (SGLANG, VLLM):
        for cause in kind.causes:
            _, hint = explain_death(1, cause.mark, [cause], "serving")
            assert "engine." not in hint
            assert "{" not in hint
    assert "serving.memory_fraction" in explain_death(1, b"torch.OutOfMemoryError", SGLANG.causes, "serving")[1]


def test_an_unknown_cause_gives_the_last_words_only():
    message, _ = explain_death(
        3, "\n".join(f"line {number}" for number in range(1000)).encode(), SGLANG.causes, "engine"
    )
    assert "exit code 3" in message
    assert "line 999" in message
    assert "line 900" not in message


def test_an_unknown_cause_begins_with_the_exception_that_was_raised():
    log = SCHEDULER_CRASH.format("ValueError: EAGLE is not supported in attention backend torch_native")
    message, _ = explain_death(-9, log.encode(), SGLANG.causes, "engine")
    assert message.startswith(
        "the engine ended with signal 9 after ValueError: EAGLE is not supported in attention backend"
    )


LEAKS = """nanobind: leaked 2 instances!
 - leaked instance 0x7f3c of type "xgrammar.xgrammar_bindings.TokenizerInfo"
 - leaked keep_alive record 0x7f3d
nanobind: leaked 15 types!
 - leaked type "xgrammar.xgrammar_bindings.GrammarMatcher"
 - ... skipped remainder
nanobind: leaked 41 functions!
 - leaked function "_batch_accept_string"
nanobind: this is likely caused by a reference counting issue in the binding code.
See https://nanobind.readthedocs.io/en/latest/refleaks.html
"""
READINGS = '[2026-12-03 14:00:12] INFO:     127.0.0.1:42174 - "GET /metrics HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize("noise", [LEAKS, READINGS * 40], ids=["leaks", "readings"])
def test_what_is_no_word_of_the_engines_is_not_among_its_last_ones(noise: str):
    crash = SCHEDULER_CRASH.format("ValueError: no")
    message, _ = explain_death(-9, (noise + crash + noise).encode(), SGLANG.causes, "engine")
    assert message == explain_death(-9, crash.encode(), SGLANG.causes, "engine")[0]
    assert message.endswith("It usually means the child failed.")


def test_a_kill_without_words_points_to_the_kernel_and_a_crash_does_not():
    message, hint = explain_death(-9, b"all was well\n", SGLANG.causes, "engine")
    assert "signal 9" in message
    assert "dmesg" in hint
    assert (
        "dmesg" not in explain_death(-9, SCHEDULER_CRASH.format("ValueError: no").encode(), SGLANG.causes, "engine")[1]
    )


def test_bytes_that_are_no_text_are_told_nevertheless():
    assert "last" in explain_death(1, b"\xff\xfe last\n", SGLANG.causes, "engine")[0]


KINDS_AND_PARTS = st.sampled_from([SGLANG, VLLM]).flatmap(
    lambda kind: st.tuples(
        st.just(kind), st.lists(st.sampled_from([b"noise\n", *(mark for mark, _ in kind.milestones)]), max_size=12)
    )
)


@given(KINDS_AND_PARTS, st.integers(0, 12))
def test_phases_only_advance_however_the_log_is_cut(case: tuple[EngineKind, list[bytes]], cut: int):
    kind, parts = case
    order = ["launching", "loading_weights", "capturing_graphs", "warming_up"]
    first = later_phase("launching", b"".join(parts[:cut]), kind.milestones)
    second = later_phase(first, b"".join(parts[cut:]), kind.milestones)
    assert order.index(first) <= order.index(second)
    assert second == later_phase("launching", b"".join(parts), kind.milestones)


def test_a_drafters_second_load_does_not_go_back_to_loading():
    assert later_phase("warming_up", b"Load weight begin. avail mem=1 GB\n", SGLANG.milestones) == "warming_up"


def test_a_real_launch_of_vllm_is_followed_to_its_end():
    log = (GOLDEN / "vllm-0.32-launch.log").read_bytes()
    lines = log.splitlines(keepends=True)
    phases: list[str] = []
    now = "launching"
    for line in lines:
        now = later_phase(now, line, VLLM.milestones)
        phases.append(now)
    assert list(dict.fromkeys(phases)) == ["launching", "loading_weights", "warming_up"]
    assert VLLM.up in lines[-1]


@pytest.mark.parametrize(
    ("name", "meaning", "first"),
    [
        ("cut-checkpoint", "could not read a checkpoint's file", "incomplete metadata, file not fully covered"),
        ("misfit", "does not fit its config.json", "Tried to load weights of size"),
        ("port", "took its port", "OSError: [Errno 98]"),
        ("killed", "was killed or crashed", "engine core exited unexpectedly"),
        ("long-context", "longer than the model knows", "greater than the derived max_model_len"),
    ],
)
def test_what_really_ended_vllm_is_named(name: str, meaning: str, first: str):
    log = (GOLDEN / f"vllm-0.32-{name}.log").read_bytes()
    message, hint = explain_death(1, log, VLLM.causes, "engine")
    assert meaning in message
    assert hint
    assert first.encode() in log


@pytest.mark.parametrize(
    ("name", "code", "meaning", "advice"),
    [
        ("killed", -9, "signal 9: the process that computes was killed or crashed", "dmesg"),
        ("port", None, "gave up and did not end: somebody else took its port", "again"),
    ],
)
def test_what_really_ended_sglang_is_named(name: str, code: int | None, meaning: str, advice: str):
    log = (GOLDEN / f"sglang-0.5.23-{name}.log").read_bytes()
    message, hint = explain_death(code, log, SGLANG.causes, "engine")
    assert meaning in message
    assert advice in hint
    assert any(mark in log for mark in SGLANG.hopeless) == (code is None)


def test_the_first_error_below_vllms_main_process_is_told_before_its_own_last_words():
    message, _ = explain_death(1, (GOLDEN / "vllm-0.32-cut-checkpoint.log").read_bytes(), (), "engine")
    said = message.split("It said last:\n")[1].splitlines()
    assert said[0].startswith("safetensors._safetensors_rust.SafetensorError: Error while deserializing header")
    assert said[-1].startswith("RuntimeError: Engine core initialization failed")
