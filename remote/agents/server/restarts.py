"""When an engine that died while it served is launched again; pure.

One that does not become ready is not: a damaged checkpoint, a port that is taken, memory that is too small for the load are the same
the next time.
"""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 300.0
"""The devices' memory comes free within the first; the longest leaves time for what a person or another job does to the host."""

SOUND_S = 600.0
"""An engine that served for so long did not die of what the one before died of."""


class Restarts:
    """Counts the deaths of one server's engines; at most `most` of them in a row are followed by another launch."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.in_a_row = 0
        self.total = 0

    def pause_after(self, served_s: float) -> float | None:
        """Seconds to wait before the next launch after an engine that served for `served_s`; None where there is to be none."""
        if served_s >= SOUND_S:
            self.in_a_row = 0
        if self.in_a_row >= self.most:
            return None
        self.in_a_row += 1
        self.total += 1
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.in_a_row - 1))
