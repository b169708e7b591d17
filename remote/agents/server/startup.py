"""What an engine's log says about its launch, and about its end; pure."""

from typing import Literal, NamedTuple

Phase = Literal["launching", "loading_weights", "capturing_graphs", "warming_up", "stopping"]

MILESTONES: tuple[tuple[bytes, Phase], ...] = (
    (b"Load weight begin", "loading_weights"),
    (b"CUDA graph begin", "capturing_graphs"),
    (b"max_total_num_tokens=", "warming_up"),
)
"""Marks in SGLang 0.5.23's log, in the order of a launch."""

FIRED_UP = b"The server is fired up and ready to roll!"
"""SGLang says so once its own warm-up request has been answered."""

_PHASES: tuple[Phase, ...] = ("launching", "loading_weights", "capturing_graphs", "warming_up")
_LINES = 12


class Cause(NamedTuple):
    """A known reason for an engine's end: a mark in the log, what it means, what to do."""

    mark: bytes
    meaning: str
    hint: str


CAUSES = (
    Cause(
        b"Please try to increase --mem-fraction-static",
        "it ran out of memory while reserving the cache",
        "raise engine.memory_fraction, or serve with a larger tensor_parallel_size",
    ),
    Cause(
        b"torch.OutOfMemoryError",
        "a device ran out of memory",
        "lower engine.memory_fraction or engine.max_running_requests, and look for other processes on the device",
    ),
    Cause(
        b"out of memory. Try to lower your batch size",
        "the key-value cache is too small for the batch",
        "lower engine.max_running_requests",
    ),
    Cause(
        b"SafetensorError",
        "it could not read a checkpoint's file",
        "check the *.safetensors of the model and of the drafter: one of them is cut short or damaged",
    ),
    Cause(
        b"Attempted to load weight",
        "a checkpoint does not fit its config.json",
        "check that the weights and the config.json of the model and of the drafter belong together",
    ),
    Cause(
        b"NCCL error",
        "the devices could not talk to each other (NCCL)",
        "try NCCL_P2P_DISABLE=1 in engine.environment, and look at IOMMU and ACS on the host",
    ),
    Cause(b"unrecognized arguments", "it does not know an option", "correct engine.flags in the run file"),
    Cause(
        b"No module named", "a Python package is missing in its environment", "install the engine's environment again"
    ),
    Cause(b"address already in use", "somebody else took its port", "start the server again"),
)


def later_phase(now: Phase, text: bytes) -> Phase:
    """The phase of a launch after `text` was logged; never an earlier one than `now`."""
    reached = [phase for mark, phase in MILESTONES if mark in text]
    return max([now, *reached], key=_PHASES.index)


def explain_death(exit_code: int, text: bytes) -> tuple[str, str]:
    """What to tell a person of an engine that ended by itself: what happened, and what to do next.

    `exit_code` as subprocess counts (negative: the signal); `text` is the tail of the log. SGLang kills itself with SIGKILL
    after a scheduler's exception, so that signal alone does not mean the kernel's out-of-memory killer.
    """
    known = next((cause for cause in CAUSES if cause.mark in text), None)
    how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    said = "\n".join(lines[-_LINES:])
    if known:
        return f"the engine ended with {how}: {known.meaning}. It said last:\n{said}", known.hint
    if exit_code == -9 and b"hit an exception" not in text:
        hint = "if nobody killed it, the kernel may have: look for 'Out of memory' in dmesg"
    else:
        hint = "the server's log has the whole story"
    return f"the engine ended with {how}. It said last:\n{said}", hint
