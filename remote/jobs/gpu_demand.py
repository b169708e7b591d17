"""How many GPUs a spec needs, and which ones where it names them; pure."""

from typing import NamedTuple

from remote.errors import UsageError
from remote.protocol.run import EngineConfig
from remote.protocol.specs import EngineSection, ExerciseSpec, ServerSpec, Spec, TrainingSpec

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_ORDER = "CUDA_DEVICE_ORDER"

# The options of SGLang that multiply, each with its other spelling (`srt/arg_groups/fields/parallel.py`).
_TENSOR = ("tp-size", "tensor-parallel-size", "tp")
_PIPELINE = ("pp-size", "pipeline-parallel-size", "pp")
_DATA = ("dp-size", "data-parallel-size", "dp")


class GpuDemand(NamedTuple):
    """So many devices; `indices` (NVML's, in the order in which the work sees them) when it must be these."""

    count: int = 0
    indices: tuple[int, ...] = ()


def gpu_demand(spec: Spec) -> GpuDemand:
    """What `spec` needs; raises UsageError where its options contradict each other."""
    match spec:
        case ServerSpec(engine=engine, section=section) if engine.device == "cuda":
            return _engine_demand(engine, section)
        case TrainingSpec(training=training) if training.device == "cuda":
            return GpuDemand(training.ranks)
        case ExerciseSpec(gpus=gpus):
            return GpuDemand(gpus)
        case _:
            return GpuDemand()


def _engine_demand(engine: EngineConfig, section: EngineSection) -> GpuDemand:
    tensor = _flag(engine, section, _TENSOR, engine.tensor_parallel_size)
    # With attention data parallelism the groups lie within the tensor parallel ranks.
    replicas = 1 if engine.flags.get("enable-dp-attention") else _flag(engine, section, _DATA, 1)
    count = tensor * _flag(engine, section, _PIPELINE, 1) * replicas
    if engine.environment.get(DEVICE_ORDER, "PCI_BUS_ID") != "PCI_BUS_ID":
        raise UsageError(f"{section}.environment sets {DEVICE_ORDER}: devices are leased by NVML's numbers, PCI_BUS_ID")
    named = engine.environment.get(VISIBLE_DEVICES)
    if named is None and "base-gpu-id" in engine.flags:
        raise UsageError(
            f"{section}.flags.base-gpu-id counts from the devices that a job is given, and Roost gives it free ones",
            hint=f"To have certain devices, name them in {section}.environment.{VISIBLE_DEVICES}.",
        )
    if named is None:
        return GpuDemand(count)
    indices = _read_indices(named, section)
    if len(indices) < count:
        raise UsageError(
            f"{section}.environment gives {VISIBLE_DEVICES}={named}, but the engine's sizes need {count} GPUs",
            hint="Name as many devices, or leave the variable out: Roost picks free ones.",
        )
    return GpuDemand(len(indices), indices)


def _flag(engine: EngineConfig, section: EngineSection, names: tuple[str, ...], otherwise: int) -> int:
    given = [engine.flags[name] for name in names if name in engine.flags]
    try:
        return int(str(given[-1])) if given else otherwise
    except ValueError:
        raise UsageError(f"{section}.flags.{names[0]} is {given[-1]!r}, not a number") from None


def _read_indices(named: str, section: EngineSection) -> tuple[int, ...]:
    indices = tuple(int(part) for part in named.split(",") if part.strip().isdecimal())
    if len(set(indices)) != len(named.split(",")):
        raise UsageError(
            f"{section}.environment gives {VISIBLE_DEVICES}={named}, which is not a list of different device numbers",
            hint="Use NVML's numbers, such as 0,1,2,3, or leave the variable out: Roost picks free devices.",
        )
    return indices
