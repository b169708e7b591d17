"""What will happen if things go on as they do."""

from remote.protocol.telemetry import MountSample

SHORT_RUNWAY_S = 3600.0
"""A disk that will be full within the hour is worth an alert."""

_NEGLIGIBLE_BYTES_PER_S = 1024.0


def runway_s(mount: MountSample) -> float | None:
    """Seconds until the disk is full at its present rate; None when it does not fill or the rate is not known."""
    rate = mount.fill_rate_bytes_per_s
    if rate is None or rate < _NEGLIGIBLE_BYTES_PER_S:
        return None
    return mount.free_bytes / rate
