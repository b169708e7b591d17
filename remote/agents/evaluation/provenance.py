"""What figures were measured on."""

import os
from collections import Counter

from remote.telemetry.host import read_cpu_model
from remote.telemetry.occupancy import ask_occupancy


def devices() -> list[str]:
    """The GPUs by name with their number, else the processor."""
    names = Counter(device.name for device in ask_occupancy().devices if device.name)
    return [f"{count} x {name}" for name, count in sorted(names.items())] or [
        f"{os.cpu_count()} cores of {read_cpu_model()}"
    ]
