"""What an engine's log says about its launch, and about its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.server.startup import MILESTONES, explain_death, later_phase

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
    message, hint = explain_death(-9, SCHEDULER_CRASH.format(line).encode())
    assert meaning in message
    assert line in message
    assert advice in hint


def test_an_unknown_cause_gives_the_last_words_only():
    message, _ = explain_death(3, "\n".join(f"line {number}" for number in range(1000)).encode())
    assert "exit code 3" in message
    assert "line 999" in message
    assert "line 900" not in message


def test_a_kill_without_words_points_to_the_kernel_and_a_crash_does_not():
    message, hint = explain_death(-9, b"all was well\n")
    assert "signal 9" in message
    assert "dmesg" in hint
    assert "dmesg" not in explain_death(-9, SCHEDULER_CRASH.format("ValueError: no").encode())[1]


def test_bytes_that_are_no_text_are_told_nevertheless():
    assert "last" in explain_death(1, b"\xff\xfe last\n")[0]


PARTS = st.lists(st.sampled_from([b"noise\n", *(mark for mark, _ in MILESTONES)]), max_size=12)


@given(PARTS, st.integers(0, 12))
def test_phases_only_advance_however_the_log_is_cut(parts: list[bytes], cut: int):
    order = ["launching", "loading_weights", "capturing_graphs", "warming_up"]
    first = later_phase("launching", b"".join(parts[:cut]))
    second = later_phase(first, b"".join(parts[cut:]))
    assert order.index(first) <= order.index(second)
    assert second == later_phase("launching", b"".join(parts))


def test_a_drafters_second_load_does_not_go_back_to_loading():
    assert later_phase("warming_up", b"Load weight begin. avail mem=1 GB\n") == "warming_up"
