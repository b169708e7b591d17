"""State-space kernels: imported by SGLang at module level, not provided."""

from collections.abc import Callable

from ._missing import missing


def __getattr__(name: str) -> Callable[..., object]:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(f"mamba.{name}")
