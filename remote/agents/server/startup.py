"""What an engine's log says about its launch, and about its end; pure."""

import re
from collections.abc import Sequence

from remote.agents.server.contract import KILLED, Cause, Phase
from remote.protocol.specs import EngineSection

_PHASES: tuple[Phase, ...] = ("launching", "loading_weights", "capturing_graphs", "warming_up")
_LINES = 12
_REASON_LETTERS = 300
_EXCEPTION = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception): .+")
"""The last line of a traceback."""

_NOISE = re.compile(
    r"nanobind: |- leaked (?:instance|keep_alive|type|function) |- \.\.\. skipped remainder|See https://nanobind\.readthedocs\.io/"
    r"|.* \"GET /(?:metrics|health\w*|ready|server_info|v1/loads)\S* HTTP/[\d.]+\" 200"
)
"""What stands around an engine's last words: what a library counts when its process ends, and readings that were asked for."""

_ROOT_CAUSE = re.compile(
    rb"^\((?:EngineCore|\w*Worker)\w* pid=\d+\) ERROR .*\] ((?:\w+\.)*\w+(?:Error|Exception): .+)", re.MULTILINE
)
"""vLLM's main process ends with a long traceback of its own after a process below it told the reason."""


def later_phase(now: Phase, text: bytes, milestones: Sequence[tuple[bytes, Phase]]) -> Phase:
    """The phase of a launch after `text` was logged; never an earlier one than `now`."""
    reached = [phase for mark, phase in milestones if mark in text]
    return max([now, *reached], key=_PHASES.index)


def explain_death(
    exit_code: int | None, text: bytes, causes: Sequence[Cause], section: EngineSection
) -> tuple[str, str]:
    """What to tell a person of an engine that ended by itself, or will never serve: what happened, and what to do next.

    `exit_code` as subprocess counts (negative: the signal), None where it lives on; `text` is the tail of the log,
    `section` where the run file describes the engine. SGLang kills itself with SIGKILL
    after a scheduler's exception, so that signal alone does not mean the kernel's out-of-memory killer.
    """
    folded = text.lower()
    known = next((cause for cause in causes if cause.mark.lower() in folded), None)
    how = _ending(exit_code)
    lines = [
        line
        for each in text.decode("utf-8", "replace").splitlines()
        if (line := each.strip()) and not _NOISE.match(line)
    ]
    root = _ROOT_CAUSE.search(text)
    first = [] if root is None else [root.group(1).decode("utf-8", "replace")]
    said = "\n".join([*first, *lines[-_LINES:]])
    if known:
        return f"the engine {how}: {known.meaning}. It said last:\n{said}", known.hint.replace("{section}", section)
    is_silent = exit_code == -9 and b"hit an exception" not in text
    hint = KILLED if is_silent else "the server's log has the whole story"
    raised = [*first, *(line for line in reversed(lines) if _EXCEPTION.match(line))]
    after = f" after {raised[0][:_REASON_LETTERS]}" if raised else ""
    return f"the engine {how}{after}. It said last:\n{said}", hint


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "gave up and did not end"
    return f"ended with signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
