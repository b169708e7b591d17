"""A model that learns which character follows which, by gradient descent; pure, and small enough for plain Python."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Learned(NamedTuple):
    """Of one step: mean cross-entropy in nats and share of characters guessed right, both before it, and its gradient's norm."""

    loss: float
    accuracy: float
    gradient_norm: float


class Bigrams:
    """Logits of the next character for every character of a text."""

    def __init__(self, text: str) -> None:
        symbols = sorted(set(text))
        numbers = {symbol: number for number, symbol in enumerate(symbols)}
        self.encoded = [numbers[symbol] for symbol in text]
        self._logits = [[0.0] * len(symbols) for _ in symbols]

    def step(self, places: Sequence[int], learning_rate: float) -> Learned:
        """Learn what follows the characters at `places`, each of which has a next one."""
        loss, right = 0.0, 0
        gradient: dict[int, list[float]] = {}
        for place in places:
            before, after = self.encoded[place], self.encoded[place + 1]
            logits = self._logits[before]
            highest = max(logits)
            weights = [math.exp(logit - highest) for logit in logits]
            total = sum(weights)
            loss += math.log(total) + highest - logits[after]
            right += after == logits.index(highest)
            row = gradient.setdefault(before, [0.0] * len(logits))
            for number, weight in enumerate(weights):
                row[number] += (weight / total - (number == after)) / len(places)
        for before, row in gradient.items():
            self._logits[before] = [
                logit - learning_rate * slope for logit, slope in zip(self._logits[before], row, strict=True)
            ]
        norm = math.sqrt(sum(slope * slope for row in gradient.values() for slope in row))
        return Learned(loss / len(places), right / len(places), norm)
