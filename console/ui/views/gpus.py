"""Each device in full, one below the other or two beside each other, and how they are connected."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.state.device_health import age_of_device, device_name, event_text, health_words
from console.state.host import HostState
from console.state.moments import format_clock
from console.state.sanitize import one_line
from console.state.units import UNKNOWN, format_bytes, format_count, format_duration, format_percent
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from remote.protocol.telemetry import GpuEvent, GpuHealth, GpuSample, GpuTopology, TelemetrySample

_TWO_FROM = 150
"""Columns from which two devices stand beside each other."""
_MOST_EVENTS = 5


def gpus_view(state: HostState, host_now: float, palette: Palette, width: int) -> RenderableType:
    """The devices of the newest reading; says so where there are none."""
    sample = state.sample
    if sample is None or not sample.gpus:
        why = "waiting for the first reading" if sample is None else one_line(sample.gpu_detail)
        return Text(f"no GPU: {why}", style=palette.quiet)
    parts: list[RenderableType] = [_source(sample, state.topology, palette)]
    blocks = [_device(gpu, state, sample, host_now, palette) for gpu in sample.gpus]
    parts.append(_beside(blocks) if width >= _TWO_FROM else Group(*blocks))
    parts.append(_connections(state.topology, palette))
    return Group(*parts)


def _source(sample: TelemetrySample, topology: GpuTopology | None, palette: Palette) -> Text:
    text = Text()
    if sample.gpu_source == "simulated":
        text.append("SIMULATED: a stand-in plays these devices  ", style=f"bold {palette.warning}")
    text.append(one_line(sample.gpu_detail), style=palette.quiet)
    if topology is not None:
        text.append(f"  events from {one_line(topology.events_from)}", style=palette.quiet)
    return text.append("\n")


def _beside(blocks: list[RenderableType]) -> Table:
    grid = Table.grid(padding=(0, 3), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    for start in range(0, len(blocks), 2):
        grid.add_row(*blocks[start : start + 2])
    return grid


def _device(
    gpu: GpuSample, state: HostState, sample: TelemetrySample, host_now: float, palette: Palette
) -> RenderableType:
    troubles = health_words(gpu, sample)
    heading = Text(f"GPU {gpu.gpu_index}  ", style=f"bold {palette.primary}")
    heading.append(f"{device_name(gpu)}  ", style=palette.foreground if gpu.name else palette.quiet)
    mark, color = ("✗", palette.error) if gpu.error is not None else ("!", palette.warning)
    heading.append(*((f"{mark} {', '.join(troubles)}", color) if troubles else ("✓ ok", palette.success)))
    read = [("load", _load(gpu)), ("power", _power(gpu)), ("links", _links(gpu))] if gpu.error is None else []
    rows = [*read, *_health_rows(gpu.health, host_now)]
    rows += [
        ("events", _events(state.readings.events, gpu.gpu_index)),
        ("used by", _users(gpu, state)),
        ("UUID", one_line(gpu.uuid)),
    ]
    age = age_of_device(gpu, sample)
    if age is not None:
        rows.insert(0, ("age", f"it last answered {format_duration(age)} before this reading"))
    return Group(heading, labelled_rows([row for row in rows if row[1]], palette), Text())


def _joined(parts: Iterable[str]) -> str:
    return "  ".join(part for part in parts if part)


def _load(gpu: GpuSample) -> str:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    share = None if used is None or not total else used / total
    return (
        f"use {format_percent(gpu.gpu_utilization)}  memory active {format_percent(gpu.memory_utilization)}"
        f"  {format_bytes(used)} of {format_bytes(total)} full ({format_percent(share)})"
    )


def _power(gpu: GpuSample) -> str:
    limit = "" if gpu.power_limit_watts is None else f" of {gpu.power_limit_watts:.0f}"
    below = gpu.temperature_margin_celsius
    margin = "" if below is None else f" ({below:.0f} below its limit)"
    return _joined(
        (
            UNKNOWN if gpu.power_watts is None else f"{gpu.power_watts:.0f}{limit} W",
            UNKNOWN if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} °C{margin}",
            _clock("SM", gpu.sm_clock_hz),
            _clock("memory", gpu.memory_clock_hz),
            "" if gpu.energy_joules is None else f"{gpu.energy_joules / 3.6e6:.1f} kWh",
        )
    )


def _clock(name: str, hertz: float | None) -> str:
    return "" if hertz is None else f"{name} {hertz / 1e6:.0f} MHz"


def _links(gpu: GpuSample) -> str:
    health = gpu.health
    parts = [f"PCIe in {_speed(gpu.pcie_rx_bytes_per_s)}, out {_speed(gpu.pcie_tx_bytes_per_s)}"]
    if health is not None and health.pcie_width is not None:
        parts.append(
            f"gen {_of(health.pcie_generation, health.pcie_generation_max)} x{_of(health.pcie_width, health.pcie_width_max)}"
        )
    if health is not None and health.pcie_replays is not None:
        parts.append(f"{format_count(health.pcie_replays)} replays")
    if health is not None and health.nvlinks_active:
        parts.append(
            f"\nNVLink {health.nvlinks_active} links, in {_speed(gpu.nvlink_rx_bytes_per_s)}, "
            f"out {_speed(gpu.nvlink_tx_bytes_per_s)}"
        )
    return _joined(parts)


def _of(now: int | None, most: int | None) -> str:
    shown = UNKNOWN if now is None else str(now)
    return shown if most is None or most == now else f"{shown} of {most}"


def _speed(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{format_bytes(rate)}/s"


def _health_rows(health: GpuHealth | None, host_now: float) -> list[tuple[str, str]]:
    if health is None:
        return []
    rows = (
        f"ECC {_count(health.ecc_corrected)} corrected, {_count(health.ecc_uncorrected)} uncorrected",
        f"rows remapped {_count(health.remapped_rows_corrected)} + {_count(health.remapped_rows_uncorrected)}",
        "remapping pending" if health.remapping_pending else "",
        "REMAPPING FAILED" if health.remapping_failed else "",
    )
    action = health.recovery_action
    advice = "" if action is None else f"the driver advises: {one_line(action)}"
    age = f"(read {format_duration(max(0.0, host_now - health.sampled_at))} ago)"
    return [("errors", _joined(rows)), ("advice", _joined((advice, age)))]


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else format_count(number)


def _events(events: list[GpuEvent], gpu_index: int) -> str:
    own = [event for event in events if event.gpu_index == gpu_index][:_MOST_EVENTS]
    return "\n".join(f"{format_clock(event.at)} {event_text(event)}" for event in own)


def _users(gpu: GpuSample, state: HostState) -> str:
    owner = ""
    if gpu.owner_job_id is not None:
        job = state.jobs.get(gpu.owner_job_id)
        owner = one_line(gpu.owner_job_id) + ("" if job is None else f" ({one_line(job.agent)})")
    processes = (gpu.health.processes if gpu.health is not None else None) or []
    pids = ", ".join(f"pid {each.pid} {format_bytes(each.memory_bytes)}" for each in processes)
    return _joined((owner or "no job of this root", pids))


def _connections(topology: GpuTopology | None, palette: Palette) -> Text:
    if topology is None or not topology.paths:
        return Text("")
    text = Text("How they are connected", style=f"bold {palette.primary}")
    groups: dict[tuple[str, str], list[str]] = {}
    for path in topology.paths:
        groups.setdefault((path.ancestor, path.peer_to_peer), []).append(f"{path.first}–{path.second}")
    for (ancestor, peers), pairs in groups.items():
        text.append(f"\n  {one_line(ancestor)}, peer to peer {one_line(peers)}: ", style=palette.quiet)
        text.append(", ".join(pairs), style=palette.foreground)
    driver = one_line(f"driver {topology.driver_version}, CUDA {topology.cuda_version}")
    return text.append(f"\n  {driver}", style=palette.quiet)
