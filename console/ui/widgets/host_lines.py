"""Disks with their runway, memory, and the running engine."""

from rich.text import Text
from textual.widgets import Static

from console.state.forecast import SHORT_RUNWAY_S, runway_s
from console.state.host import HostState
from console.state.sanitize import sanitize
from console.state.units import UNKNOWN, format_byte_rate, format_bytes, format_duration, format_percent, format_rate
from console.ui.widgets.palette import Palette
from remote.protocol.telemetry import EngineSample, HostSample, MountSample

_BAR_WIDTH = 8
_MOST_MOUNTS = 3


class HostLines(Static):
    """A line a disk, one for the memory, one for each engine that runs."""

    def show(self, state: HostState, palette: Palette, *, stale: bool) -> None:
        """Render the newest reading."""
        sample = state.sample
        if sample is None:
            self.update(Text("waiting for the first reading of the disks", style=palette.quiet))
            return
        lines = [_mount(mount, palette) for mount in sample.mounts[:_MOST_MOUNTS]]
        lines.append(_memory(sample.host, palette))
        lines += [_engine(engine, palette) for engine in sample.engines]
        if not sample.engines:
            lines.append(Text("engine  none is running", style=palette.quiet))
        text = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
        text.no_wrap, text.overflow = True, "ellipsis"
        if stale:
            text = Text(text.plain, style=palette.quiet, no_wrap=True, overflow="ellipsis")
        self.update(text)


def _mount(mount: MountSample, palette: Palette) -> Text:
    fraction = mount.used_bytes / mount.total_bytes if mount.total_bytes else 0.0
    filled = round(fraction * _BAR_WIDTH)
    text = Text("disk    ", style=palette.quiet)
    text.append(f"{sanitize(mount.path)} ", style=palette.foreground)
    text.append("█" * filled, style=palette.level(fraction))
    text.append("░" * (_BAR_WIDTH - filled), style=palette["bar-empty"])
    text.append(f" {format_bytes(mount.used_bytes)} of {format_bytes(mount.total_bytes)}", style=palette.foreground)
    text.append(f"  {format_bytes(mount.free_bytes)} free", style=palette.foreground)
    if mount.fill_rate_bytes_per_s is not None:
        text.append(f"  {format_byte_rate(mount.fill_rate_bytes_per_s)}", style=palette.quiet)
    runway = runway_s(mount)
    if runway is not None:
        short = runway < SHORT_RUNWAY_S
        text.append(f"  full in {format_duration(runway)}", style=f"bold {palette.error}" if short else palette.quiet)
    return text


def _memory(host: HostSample, palette: Palette) -> Text:
    text = Text("memory  ", style=palette.quiet)
    text.append(
        f"{format_bytes(host.memory_used_bytes)} of {format_bytes(host.memory_total_bytes)}", style=palette.foreground
    )
    if host.shm_used_bytes is not None and host.shm_total_bytes:
        text.append(f"  shm {format_percent(host.shm_used_bytes / host.shm_total_bytes)}", style=palette.quiet)
    text.append(f"  load {host.load_1m:.1f}", style=palette.quiet)
    reads, writes = format_bytes(host.disk_read_bytes_per_s), format_bytes(host.disk_write_bytes_per_s)
    text.append(f"  disk reads {reads}/s writes {writes}/s", style=palette.quiet)
    return text


def _engine(engine: EngineSample, palette: Palette) -> Text:
    text = Text("engine  ", style=palette.quiet)
    text.append(f"{engine.engine} ", style=palette.foreground)
    text.append(f"prefill {format_rate(engine.prefill_tokens_per_s, 'tok')}", style=palette.foreground)
    text.append(f"  decode {format_rate(engine.decode_tokens_per_s, 'tok')}", style=palette.foreground)
    running = UNKNOWN if engine.running_requests is None else str(engine.running_requests)
    queued = UNKNOWN if engine.queued_requests is None else str(engine.queued_requests)
    text.append(f"  {running} running, {queued} queued", style=palette.quiet)
    if engine.acceptance_length is not None:
        text.append(f"  acceptance length {engine.acceptance_length:.2f}", style=palette.accent)
    return text
