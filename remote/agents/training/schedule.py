"""The learning rate of each step, pure: a linear warm-up, then a cosine down to zero."""

import math


def learning_rate(step: int, *, total_steps: int, peak: float, warmup_fraction: float) -> float:
    """The rate of `step` (counted from 1) out of `total_steps`."""
    warmup = max(1, round(total_steps * warmup_fraction))
    if step <= warmup:
        return peak * step / warmup
    progress = (step - warmup) / max(1, total_steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
