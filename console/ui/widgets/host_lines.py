"""Disks with their runway, memory, and the running engine."""

import msgspec
from rich.text import Text

from console.state.forecast import fullness, need_words, runway_s, runway_words, seconds_needed
from console.state.host import HostState
from console.state.sanitize import one_line
from console.state.units import UNKNOWN, format_bytes, format_duration, format_percent, format_rate
from console.ui.widgets.lines import Lines
from console.ui.widgets.palette import Palette
from remote.protocol.jobs import is_over
from remote.protocol.telemetry import EngineSample, HostSample, JobSample, MountSample, TelemetrySample

_BAR_WIDTH = 8
_ROOMY = 140
"""Columns from which the network has room."""
_WIDE_FROM = 100
"""Columns from which a disk's size and what is still written have room."""
_MOST_MOUNTS = 3
_STEADY_BYTES_PER_S = 1024.0


class HostLines(Lines):
    """A line a disk, one for the memory, one for each engine that runs; on a low screen the fullest disk alone has a line."""

    def show(self, state: HostState, palette: Palette, *, stale: bool, low: bool, disk_alone: bool = False) -> None:
        """Render the newest reading; with `disk_alone` nothing but the disk that fills first."""
        sample = state.sample
        if sample is None:
            self.put(Text("disks, memory, engine: waiting for the first reading", style=palette.quiet))
            return
        lines = host_lines(
            without_ended_engines(sample, state),
            palette,
            low=low,
            roomy=self.size.width >= _ROOMY,
            columns=self.content_size.width or 78,
        )
        text = Text("\n").join(lines[:1] if disk_alone else lines)
        self.put(Text(text.plain, style=palette.quiet) if stale else text)


def without_ended_engines(sample: TelemetrySample, state: HostState) -> TelemetrySample:
    """The reading without engines whose job has ended since it was taken: they are not to answer any more."""
    ended = {job_id for job_id, job in state.jobs.items() if is_over(job.state)}
    return msgspec.structs.replace(sample, engines=[each for each in sample.engines if each.job_id not in ended])


def host_lines(sample: TelemetrySample, palette: Palette, *, low: bool, roomy: bool, columns: int) -> list[Text]:
    """The lines, the most pressing disk first."""
    mounts = sorted(sample.mounts, key=_pressure)
    shown = mounts[: 1 if low else _MOST_MOUNTS]
    short = {each.subject for each in sample.diagnoses if each.code == "runway_short"}
    lines = [_mount(mount, sample.jobs, palette, short=mount.path in short, columns=columns) for mount in shown]
    lines.append(_memory(sample.host, mounts[len(shown) :], palette, low=low, roomy=roomy))
    if sample.engines:
        lines += [_engine(engine, palette) for engine in sample.engines]
    else:
        lines.append(Text("engine  none is running", style=palette.quiet))
    return lines


def pressing_mount(sample: TelemetrySample) -> MountSample | None:
    """The disk that fills first, or has the least room; None where none is known."""
    return min(sample.mounts, key=_pressure, default=None)


def pressing_disk(state: HostState, palette: Palette, *, columns: int) -> Text | None:
    """The line of the disk that fills first; None before the first reading and where no disk is known."""
    mount = None if state.sample is None else pressing_mount(state.sample)
    if state.sample is None or mount is None:
        return None
    short = any(each.code == "runway_short" and each.subject == mount.path for each in state.sample.diagnoses)
    return _mount(mount, state.sample.jobs, palette, short=short, columns=columns, label="disk ")


def _pressure(mount: MountSample) -> tuple[float, float]:
    runway = runway_s(mount)
    return (runway if runway is not None else float("inf"), mount.free_bytes / max(1, mount.total_bytes))


def _mount(
    mount: MountSample, jobs: list[JobSample], palette: Palette, *, short: bool, columns: int, label: str = "disk    "
) -> Text:
    """`short` is what the host says of its runway. What has no room on `columns` goes: the rate, the size, what is still written."""
    need = seconds_needed(mount, jobs)
    words = need_words(mount, jobs)
    brief = "" if need is None else f", needs {format_duration(need)}"
    forms = [(True, True, words), (False, True, words), (False, False, words), (False, True, brief)]
    if columns < _WIDE_FROM:
        forms = []
    for rate, size, needs in [*forms, (need is None, False, brief)]:
        text = _mount_line(mount, jobs, palette, short=short, label=label, rate=rate, size=size, needs=needs)
        if text.cell_len <= columns:
            break
    return text


def _mount_line(
    mount: MountSample,
    jobs: list[JobSample],
    palette: Palette,
    *,
    short: bool,
    label: str,
    rate: bool,
    size: bool,
    needs: str,
) -> Text:
    fraction = fullness(mount) or 0.0
    filled = round(fraction * _BAR_WIDTH)
    text = Text(label, style=palette.quiet)
    text.append(f"{one_line(mount.path)} ", style=palette.foreground)
    text.append("█" * filled, style=palette.fullness(fraction))
    text.append("░" * (_BAR_WIDTH - filled), style=palette["bar-empty"])
    usable = mount.used_bytes + mount.free_bytes  # as df has it: what root keeps for itself is neither
    share = f" {format_percent(fraction)} of {format_bytes(usable)} used," if size else ""
    text.append(f"{share} {format_bytes(mount.free_bytes)} free", style=palette.foreground)
    if rate:
        text.append(f"  {_filling(mount.fill_rate_bytes_per_s)}", style=palette.quiet)
    runway = runway_words(mount, jobs, is_short=short)
    if runway:
        text.append(f"  {runway}", style=f"bold {palette.error}" if short else palette.foreground)
    return text.append(needs, style=palette.foreground)


def _filling(rate: float | None) -> str:
    if rate is None:
        return "fill rate not known yet"
    if abs(rate) < _STEADY_BYTES_PER_S:
        return "steady"
    return f"{'+' if rate > 0 else '-'}{format_bytes(abs(rate))}/s"


def _memory(host: HostSample, other_mounts: list[MountSample], palette: Palette, *, low: bool, roomy: bool) -> Text:
    text = Text("memory  ", style=palette.quiet)
    text.append(
        f"{format_bytes(host.memory_used_bytes)} of {format_bytes(host.memory_total_bytes)}", style=palette.foreground
    )
    if host.shm_used_bytes is not None and host.shm_total_bytes:
        text.append(f"  shm {format_percent(host.shm_used_bytes / host.shm_total_bytes)}", style=palette.quiet)
    text.append(f"  load {host.load_1m:.1f}", style=palette.quiet)
    for mount in other_mounts[:2]:
        text.append(f"  {one_line(mount.path)} {format_percent(fullness(mount))} full", style=palette.quiet)
    if not low:
        reads, writes = format_bytes(host.disk_read_bytes_per_s), format_bytes(host.disk_write_bytes_per_s)
        text.append(f"  disk reads {reads}/s, writes {writes}/s", style=palette.quiet)
    if roomy:
        received, sent = format_bytes(host.network_rx_bytes_per_s), format_bytes(host.network_tx_bytes_per_s)
        text.append(f"  network in {received}/s, out {sent}/s", style=palette.quiet)
    return text


def _engine(engine: EngineSample, palette: Palette) -> Text:
    text = Text("engine  ", style=palette.quiet)
    text.append(f"{one_line(engine.engine)} ", style=palette.foreground)
    if not engine.is_answering:
        text.append("does not answer", style=palette.warning)
        return text
    text.append(f"prefill {format_rate(engine.prefill_tokens_per_s, 'tok')}", style=palette.foreground)
    text.append(f"  decode {format_rate(engine.decode_tokens_per_s, 'tok')}", style=palette.foreground)
    running = UNKNOWN if engine.running_requests is None else str(engine.running_requests)
    queued = UNKNOWN if engine.queued_requests is None else str(engine.queued_requests)
    text.append(f"  {running} running, {queued} queued", style=palette.quiet)
    if engine.acceptance_length is not None:
        rate = "" if engine.acceptance_rate is None else f" ({format_percent(engine.acceptance_rate)})"
        text.append(f"  acceptance {engine.acceptance_length:.2f}{rate}", style=palette.accent)
    return text
