"""A configured host in a line or on a card: its link, devices, disk, jobs, the gravest alert, its allocation and its price."""

from typing import NamedTuple

from rich.text import Text

from console.state.alerts import alerts
from console.state.allocation import Allocation, Ending, Pending, Running
from console.state.cost import Price, price_words
from console.state.forecast import runway_s
from console.state.host import HostState
from console.state.link import Closed
from console.state.moments import format_moment
from console.state.sanitize import one_line
from console.state.units import format_bytes, format_duration, format_percent
from console.ui.widgets.host_lines import pressing_mount
from console.ui.widgets.palette import Palette
from console.ui.widgets.top_bar import link_text
from remote.protocol.jobs import is_over
from remote.protocol.telemetry import TelemetrySample

_BUSY = 0.05
"""A device that is used more than this share of the time is busy."""

_NAME, _DEVICES, _JOBS = 14, 17, 9
NARROW = 130
"""Columns below which a host has one line."""


class HostLook(NamedTuple):
    """`state` is None for a host that was not opened; `allocation` is its Slurm allocation, or words why that is not known."""

    name: str
    address: str
    state: HostState | None
    is_open: bool
    is_shown: bool
    price: Price | None = None
    allocation: Allocation | str | None = None


def host_line(look: HostLook, now: float, palette: Palette, width: int) -> Text:
    """One line; what is gravest comes last and goes on as far as there is room."""
    text = _name(look, palette)
    text.append(" " * max(1, _NAME - text.cell_len))
    link = _link(look, now, palette)
    link.truncate(22, overflow="ellipsis", pad=True)
    text.append_text(link)
    text.append(" ")
    sample = None if look.state is None else look.state.sample
    if sample is not None and look.state is not None:
        text.append(f"{_devices(sample):<{_DEVICES}.{_DEVICES}} ", style=palette.foreground)
        text.append(f"{_jobs(look.state):<{_JOBS}.{_JOBS}} ", style=palette.foreground)
    gravest = _gravest(look, now, palette)
    if gravest is not None:
        text.append_text(gravest)
    elif sample is not None:
        text.append(_disk(sample), style=palette.quiet)
    text.truncate(width, overflow="ellipsis")
    return text


def host_card(look: HostLook, now: float, palette: Palette, width: int) -> Text:
    """Several lines: name and link, devices with memory, the disk that fills first, jobs and price, the gravest alert."""
    head = _name(look, palette)
    head.append("  ")
    head.append_text(_link(look, now, palette))
    lines = [head]
    state = look.state
    sample = None if state is None else state.sample
    if state is None or sample is None:
        lines += [Text(f"  {one_line(look.address)}", style=palette.quiet), Text()]
    else:
        lines.append(Text(f"  {_devices(sample)}{_memory(sample)}", style=palette.foreground))
        lines.append(Text(f"  {_disk(sample)}", style=palette.foreground))
    words = [] if state is None or not state.jobs_known else [_jobs(state, named=True)]
    words += [f"Slurm: {_allocation(look.allocation)}"] if look.allocation is not None else []
    words += [price_words(look.price)] if look.price is not None else []
    lines.append(Text(f"  {', '.join(words)}", style=palette.foreground))
    gravest = _gravest(look, now, palette)
    lines.append(Text("  no alert", style=palette.quiet) if gravest is None else Text("  ").append_text(gravest))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _name(look: HostLook, palette: Palette) -> Text:
    text = Text("▸ " if look.is_shown else "  ", style=palette.primary)
    text.append(look.name, style=f"bold {palette.primary}")
    text.truncate(_NAME - 1, overflow="ellipsis")
    return text


def _link(look: HostLook, now: float, palette: Palette) -> Text:
    if look.state is None or not look.is_open:
        seen = None if look.state is None else look.state.sample_at
        words = "· not open" if seen is None else f"· not open, seen {format_duration(now - seen)} ago"
        return Text(words, style=palette.quiet)
    if isinstance(look.state.link, Closed) and look.state.link.error is not None:
        return Text("✗ not tried again", style=palette.error)
    text = link_text(look.state, now, palette)
    age = None if look.state.sample_at is None else now - look.state.sample_at
    if age is not None and age > 1.0:
        text.append(f", {format_duration(age)} ago", style=palette.quiet)
    return text


def _devices(sample: TelemetrySample) -> str:
    """Devices that work of how many there are; of a host without any how busy its processors are."""
    if not sample.gpus:
        loads = sample.host.cpu_utilization
        return f"CPU {format_percent(sum(loads) / len(loads))}" if loads else "no GPU"
    busy = sum(1 for gpu in sample.gpus if gpu.error is None and (gpu.gpu_utilization or 0.0) > _BUSY)
    used = sum(gpu.memory_used_bytes or 0 for gpu in sample.gpus)
    return f"{busy}/{len(sample.gpus)} GPUs {format_bytes(used)}"


def _memory(sample: TelemetrySample) -> str:
    """Of what the devices have, or the host where it has none."""
    if not sample.gpus:
        used, whole = sample.host.memory_used_bytes, sample.host.memory_total_bytes
        return f", memory {format_bytes(used)} of {format_bytes(whole)}"
    return f" of {format_bytes(sum(gpu.memory_total_bytes or 0 for gpu in sample.gpus))} busy"


def _disk(sample: TelemetrySample) -> str:
    mount = pressing_mount(sample)
    if mount is None:
        return "no disk is known"
    left = runway_s(mount)
    runway = "" if left is None else f", full in {format_duration(left)}"
    return f"{one_line(mount.path)} {format_bytes(mount.free_bytes)} free{runway}"


def _jobs(state: HostState, *, named: bool = False) -> str:
    live = [job for job in state.shown_jobs() if not is_over(job.state)]
    if not live:
        return "no job" if not named else "no job at work"
    words = f"{len(live)} job{'s' if len(live) > 1 else ''}"
    return f"{words}: {', '.join(one_line(job.agent) for job in live)}" if named else words


def _gravest(look: HostLook, now: float, palette: Palette) -> Text | None:
    if look.state is None or not look.is_open:
        return None
    found = alerts(look.state, now)
    if not found:
        return None
    more = f" (+{len(found) - 1})" if len(found) > 1 else ""
    return Text(f"{found[0]}{more}", style=palette.error if found[0].is_grave else palette.warning)


def _allocation(allocation: Allocation | str) -> str:
    match allocation:
        case Allocation(state=Pending(reason=reason, starts_at=starts_at)):
            when = "" if starts_at is None else f", expected {format_moment(starts_at)}"
            return f"waits ({one_line(reason) or 'submitted'}{when})"
        case Allocation(state=Running(node=node, ends_at=ends_at)):
            return f"on {one_line(node)}" + ("" if ends_at is None else f" until {format_moment(ends_at)}")
        case Allocation(state=Ending(word=word)):
            return f"ends ({one_line(word)})"
        case _:
            return str(allocation)
