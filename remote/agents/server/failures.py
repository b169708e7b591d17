"""Why an engine died: its exit code does not say, its log does (a scheduler's crash and the kernel's OOM killer are both -9)."""

from remote.errors import RoostError, WorkFailed

_CAUSES = (
    (
        ("Not enough memory. Please try to increase --mem-fraction-static", "torch.OutOfMemoryError", "out of memory"),
        "the engine ran out of device memory",
        "lower engine.memory_fraction or engine.context_length, or serve on more devices",
    ),
    (
        ("address already in use", "Address already in use"),
        "the engine's port was taken by somebody else in the meantime",
        "start it again",
    ),
    (
        ("unrecognized arguments", "error: argument"),
        "the engine does not know one of the flags",
        "compare engine.flags with the installed version's --help",
    ),
    (
        ("SafetensorError", "Error while deserializing header", "size mismatch for"),
        "the engine could not read a checkpoint",
        "check the files of the model and of the drafter",
    ),
    (
        ("ncclUnhandledCudaError", "NCCL error", "ncclSystemError"),
        "the devices could not talk to each other (NCCL)",
        "set NCCL_P2P_DISABLE=1 in engine.environment, and look at IOMMU and ACS on the host",
    ),
)
_TAIL_LINES = 12
_TAIL_CHARACTERS = 1500


def explain_death(exit_code: int, log: str) -> RoostError:
    """The failure in words: the cause when the log names one, else its last lines."""
    died = (
        f"the engine ended with exit code {exit_code}"
        if exit_code >= 0
        else f"the engine was killed by signal {-exit_code}"
    )
    tail = "\n".join(log.strip().splitlines()[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]
    for needles, cause, hint in _CAUSES:
        if any(needle in log for needle in needles):
            return WorkFailed(f"{cause} ({died}); its last words:\n{tail}", hint=hint)
    hint = (
        "the log has the whole story"
        if exit_code != -9
        else "the log, or the kernel's OOM killer (dmesg), has the story"
    )
    return WorkFailed(f"{died}; its last words:\n{tail}", hint=hint)
