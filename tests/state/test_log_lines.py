"""Levels are found in the usual forms and nowhere else; what our jobs write of their progress is read back."""

import re
from typing import get_args

import msgspec
import pytest

from console.state.log_lines import LogLine, level_of, log_line, readable
from console.state.progress_words import progress_words
from remote.agents.harness import _log_line
from remote.protocol.progress import ArmAdvanced, ExtractionPlanned, Note, Progress, SampleQuarantined, StageChanged
from tests.protocol.protocol_samples import SAMPLES

_EVENTS = [
    sample for sample in SAMPLES if isinstance(sample, get_args(Progress)) and not isinstance(sample, StageChanged)
]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2026-12-01 11:22:49,123 sglang.srt WARNING slow", "warning"),
        ("WARNING:root:slow", "warning"),
        ("ERROR    tests.py:3 broken", "error"),
        ("[2026-12-01 11:22:49 TP0] WARNING: slow", "warning"),
        ("[2026-12-01 11:22:49] Ignore import error when loading x", None),
        ("[2026-12-01 11:22:49] INFO:     127.0.0.1 - POST /generate 200 OK", "info"),
        ("INFO:     Started server process [1]", "info"),
        ("INFO 12-01 11:22:49 [core.py:33] ready", "info"),
        ("(EngineCore pid=7) ERROR 12-01 11:22:49 [core.py:33] gone", "error"),
        ("DEBUG:asyncio:Using selector", "debug"),
        ("CRITICAL: no way", "error"),
        ("gpu-7:12:34 [0] NCCL WARN Call to connect returned", "warning"),
        ("W1201 11:22:49.123456 123 socket.cpp:33] retry", "warning"),
        ("[rank0]:[E1201 11:22:49.123 ProcessGroupNCCL.cpp:632] timeout", "error"),
        ('{"level": "error", "message": "gone"}', "error"),
        ("time=2026-12-01T11:22:49Z level=warn msg=slow", "warning"),
        ("/x/awq.py:53: UserWarning: Only CUDA supports AWQ", "warning"),
        ("Traceback (most recent call last):", "error"),
        ("torch.OutOfMemoryError: CUDA out of memory", "error"),
        ("KeyboardInterrupt", "error"),
        ("11:22:49 warning: the disk is nearly full", "warning"),
        ("error: no such file", "error"),
        ("step 5/400  loss 24.2983", None),
        ("a warning that nothing says in the usual form", None),
        ("/var/log/ERROR.log is read", None),
        ("0 errors, 0 warnings", None),
        ("x" * 300 + " ERROR", None),
    ],
)
def test_a_level_is_found_where_a_line_says_it_in_a_usual_form(line, level) -> None:
    assert level_of(line) == level


def test_colours_hide_no_level() -> None:
    assert log_line("\x1b[31mERR\x1b[0mOR: x").level == "error"
    assert log_line("\x1b[31mERROR\x1b[0m: x", 2) == LogLine("\x1b[31mERROR\x1b[0m: x", "error", 2)


@pytest.mark.parametrize("event", _EVENTS, ids=lambda event: type(event).__name__)
def test_what_a_job_writes_of_an_event_reads_as_the_sentence_of_the_event(event) -> None:
    """Floats lose digits on the way into the log, so both sentences are compared without what follows the third."""
    line = _log_line(event).split("\n")[0]
    said = readable(f"2026-12-03T13:14:15Z {line}")
    assert said.startswith("13:14:15 ")
    assert _short(said.removeprefix("13:14:15 ")) == _short(progress_words(event))


def _short(text: str) -> str:
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.2g}", text)


def test_values_with_blanks_and_lists_of_structs_are_no_obstacle() -> None:
    note = Note(level="warning", text="a text=of its own, with level=7 in it")
    assert readable(f"00:00:01 {_log_line(note)}") == "00:00:01 warning: a text=of its own, with level=7 in it"
    (planned,) = [event for event in _EVENTS if isinstance(event, ExtractionPlanned)]
    unfit = msgspec.structs.replace(
        planned, unfit_samples=[SampleQuarantined(sample_id="a,b", reason="too long, cut=1")]
    )
    assert "samples" in readable(f"00:00:01 {_log_line(unfit)}".split("\n")[0])


def test_the_line_of_an_arm_is_a_sentence_with_its_level_and_time() -> None:
    arm = ArmAdvanced(arm="drafter", prompts_done=3, prompts_total=20, decode_tokens_per_s=12.5, acceptance_length=1.4)
    said = "13:14:15 drafter: 3/20 prompts, 12.5 tok/s"
    assert readable(f"2026-12-03T13:14:15Z {_log_line(arm)}") == said
    unknown = msgspec.structs.replace(arm, acceptance_length=None)
    assert readable(f"2026-12-03T13:14:15Z {_log_line(unknown)}") == said


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("13:14:15 arm_advanced arm=nobody prompts_done=x", "13:14:15 arm_advanced arm=nobody prompts_done=x"),
        ("13:14:15 step_logged", "13:14:15 step_logged"),
        ("13:14:15 a new event of another release=1", "13:14:15 a new event of another release=1"),
        ("2026-12-03T13:14:15Z the stage training is done", "13:14:15 the stage training is done"),
        ("arm_advanced arm=baseline", "arm_advanced arm=baseline"),
        ("", ""),
    ],
)
def test_what_cannot_be_read_stays_as_it_was_written(line, shown) -> None:
    assert readable(line) == shown
