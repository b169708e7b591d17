"""What the server agent must know of an engine: its command line, how it says that it is up, how it is asked, why it ends."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from remote.protocol.run import FlagValue
from remote.protocol.specs import Capture, EngineSection, ServerSpec

HOST = "127.0.0.1"
"""The only address that is ever bound: an engine's own HTTP interface has no boundary but this one."""

Phase = Literal["launching", "loading_weights", "capturing_graphs", "warming_up", "stopping"]


class EngineCommand(NamedTuple):
    """What to execute: the launcher, the engine's own options, and the variables to lay over the inherited environment.

    `section` of the run file says so.
    """

    launcher: list[str]
    flags: dict[str, FlagValue]
    environment: dict[str, str]
    section: EngineSection = "engine"

    @property
    def argv(self) -> list[str]:
        """The whole command line."""
        return [*self.launcher, *_arguments(self.flags)]


class Place(NamedTuple):
    """Where a server is to run: the interpreter unless the spec names one, the port, and the target's `config.json`."""

    python: str
    port: int
    model_config: dict[str, Any]


class Question(NamedTuple):
    """An HTTP request; an engine that agrees answers 200."""

    method: Literal["GET", "POST"]
    path: str
    body: dict[str, Any] | None = None


class Cause(NamedTuple):
    """A known reason for an engine's end: a mark in the log (in any case), what it means, what to do.

    `{section}` in the hint stands for the part of the run file that describes the engine.
    """

    mark: bytes
    meaning: str
    hint: str


class EngineKind(NamedTuple):
    """One engine.

    `distributions` are the names that its package is installed under, `help` is the option that lists all others.
    `milestones` are marks in its log in the order of a launch and `up` is the last one, after which `proof` is asked until it
    is answered; after one of `hopeless` it never will be, even where the process lives on. `drop` makes it give up its requests before it is stopped; None where SIGTERM does that.
    """

    distributions: tuple[str, ...]
    help: str
    command: Callable[[ServerSpec, Place], EngineCommand]
    milestones: tuple[tuple[bytes, Phase], ...]
    up: bytes
    hopeless: tuple[bytes, ...]
    proof: Question
    version: Question
    drop: Question | None
    causes: tuple[Cause, ...]


KILLED = "if nobody killed it, the kernel may have: look for 'Out of memory' in dmesg"
"""What to do about an engine's process that ended without a word."""

COMMON_CAUSES = (
    Cause(
        b"torch.OutOfMemoryError",
        "a device ran out of memory",
        "lower {section}.memory_fraction or {section}.max_running_requests, and look for other processes on the device",
    ),
    Cause(
        b"SafetensorError",
        "it could not read a checkpoint's file",
        "check the *.safetensors of the model and of the drafter: one of them is cut short or damaged",
    ),
    Cause(
        b"NCCL error",
        "the devices could not talk to each other (NCCL)",
        "try NCCL_P2P_DISABLE=1 in {section}.environment, and look at IOMMU and ACS on the host",
    ),
    Cause(b"unrecognized arguments", "it does not know an option", "correct {section}.flags in the run file"),
    # Not "No module named": models and kernels that an engine does without are told so at every launch.
    Cause(
        b"ModuleNotFoundError",
        "a Python package is missing in its environment",
        "install the engine's environment again",
    ),
    Cause(b"address already in use", "somebody else took its port", "start the server again"),
)
"""Words of PyTorch, Python and the C library, which every engine dies with."""


def capture_environment(capture: Capture) -> dict[str, str]:
    """What a capture inside any engine is told."""
    return {
        "ROOST_CAPTURE_SPOOL": capture.spool_directory,
        "ROOST_CAPTURE_LAYER_IDS": ",".join(map(str, capture.layer_ids)),
        "ROOST_CAPTURE_MEMORY_BYTES": str(capture.memory_bytes),
    }


def _arguments(flags: dict[str, FlagValue]) -> list[str]:
    arguments: list[str] = []
    for name, value in flags.items():
        match value:
            case False:
                pass
            case True:
                arguments.append(f"--{name}")
            case list():
                arguments += [f"--{name}", *value]
            case _:
                arguments += [f"--{name}", str(value)]
    return arguments
