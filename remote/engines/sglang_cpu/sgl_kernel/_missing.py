"""Names that SGLang imports and that this stand-in does not have."""

from collections.abc import Callable
from typing import NoReturn


def missing(name: str) -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError, naming what is missing."""

    def absent(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} is not in Roost's CPU stand-in")

    absent.__name__ = name
    return absent
