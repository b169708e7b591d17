"""An extraction as it goes: how far, how fast, what it writes where, what is left of the disk, and which samples are left out."""

from rich.console import Group, RenderableType
from rich.text import Text

from console.state.forecast import need_words, pace_words, runway_s, runway_words
from console.state.host import HostState
from console.state.sanitize import one_line
from console.state.units import format_bytes, format_duration, format_percent
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from console.ui.words import job_mark
from remote.protocol.jobs import Job, Paused, is_over
from remote.protocol.progress import ExtractionAdvanced, ExtractionPlanned, SampleQuarantined
from remote.protocol.telemetry import JobSample, MountSample

_LABELS = 12
_BAR = 24
_MOST_SHOWN = 20
_MOST_TEXT = 240


def extraction_view(state: HostState, job: Job, palette: Palette) -> RenderableType | None:
    """None while the extraction has told nothing."""
    plan, done = state.extraction_plans.get(job.job_id), state.extraction.get(job.job_id)
    if plan is None and done is None:
        return None
    parts: list[RenderableType] = [_heading(job, palette)]
    if done is not None and not is_over(job.state):
        parts.append(_bar(done, palette))
    rows = [] if done is None else _progress(state, job, done)
    rows += [] if plan is None else _plan(plan)
    if isinstance(job.state, Paused):
        rows.append(("paused", one_line(job.state.reason)))
    if not is_over(job.state):
        rows += _disk(state, job)
    parts.append(labelled_rows(rows, palette, _LABELS))
    if plan is not None and not plan.fits and not is_over(job.state):
        parts.append(Text("   ✗ it does not fit on the disk", style=f"bold {palette.error}"))
    parts += _quarantine(state.quarantined.get(job.job_id, []), done, palette)
    return Group(*parts)


def _heading(job: Job, palette: Palette) -> Text:
    """One by itself has its name and its state, for no stage tells them."""
    text = Text("\nExtraction", style=f"bold {palette.primary}")
    if job.run_id is None:
        mark = job_mark(job.state)
        text.append(f" {job.job_id} ").append(f"{mark.glyph} {mark.word}", style=palette[mark.color])
    return text


def _bar(done: ExtractionAdvanced, palette: Palette) -> Text:
    share = done.samples_done / max(1, done.samples_total)
    filled = round(share * _BAR)
    text = (
        Text("  ").append("█" * filled, style=palette.accent).append("░" * (_BAR - filled), style=palette["bar-empty"])
    )
    text.append(f" {format_percent(share)}", style=palette.foreground)
    if done.eta_s is not None:
        text.append(f"  {format_duration(done.eta_s)} left", style=palette.foreground)
    return text


def _progress(state: HostState, job: Job, done: ExtractionAdvanced) -> list[tuple[str, str]]:
    of_tokens = f" of {done.tokens_total:,}" if done.tokens_total else ""
    rows = [
        ("done", f"{done.samples_done:,} of {done.samples_total:,} samples, {done.tokens_done:,}{of_tokens} tokens"),
    ]
    sample = state.sample_of(job)
    pace = pace_words(sample) if sample is not None else []
    if not is_over(job.state):
        rows.append(("pace", ", ".join(pace) or f"{done.tokens_per_s:,.0f} tok/s"))
    of_bytes = f" of {format_bytes(done.bytes_total)}" if done.bytes_total else ""
    pending = (
        f", {format_bytes(done.bytes_pending)} more in a shard that is not whole yet" if done.bytes_pending else ""
    )
    return [*rows, ("in the store", f"{format_bytes(done.bytes_written)}{of_bytes}{pending}")]


def _plan(plan: ExtractionPlanned) -> list[tuple[str, str]]:
    kept = f", {format_bytes(plan.keep_free_bytes)} of which are to stay so" if plan.keep_free_bytes else ""
    files_free = "" if plan.inodes_free is None else f" and room for {plan.inodes_free:,} files"
    cut = f", {plan.cut:,} of them cut" if plan.cut else ""
    unfit = f"; {plan.unfit:,} more cannot be used" if plan.unfit else ""
    counting = f"of which {format_percent(plan.loss_tokens / max(1, plan.tokens))} count for the loss"
    text = one_line(plan.sample_text)
    return [
        ("planned", f"{plan.samples:,} samples{cut}, {plan.tokens:,} tokens, {counting}{unfit}"),
        ("", f"{format_bytes(plan.bytes_total)} in {plan.shards:,} shards"),
        (
            "disk plan",
            f"{format_bytes(plan.bytes_needed)} in {plan.inodes_needed:,} files were to be written at its start,",
        ),
        ("", f"where {format_bytes(plan.bytes_free)}{files_free} were free{kept}"),
        ("a sample", f"{one_line(plan.sample_id)}: {text[:_MOST_TEXT]}{'…' if len(text) > _MOST_TEXT else ''}"),
    ]


def _disk(state: HostState, job: Job) -> list[tuple[str, str]]:
    reading = state.sample_of(job)
    if state.sample is None or reading is None or reading.writes_to is None:
        return []
    mounts = [mount for mount in state.sample.mounts if mount.path == reading.writes_to]
    words = [f"{one_line(mount.path)}: {mount_words(mount, state.sample.jobs)}" for mount in mounts]
    return [("disk now", each) for each in words]


def mount_words(mount: MountSample, jobs: list[JobSample]) -> str:
    """A disk in full: bytes and files that have room, how fast it fills, how long that lasts."""
    files = "" if mount.free_inodes is None else f" and room for {mount.free_inodes:,} files"
    words = f"{format_bytes(mount.free_bytes)} of {format_bytes(mount.total_bytes)} free{files}"
    rate = mount.fill_rate_bytes_per_s
    if rate is None:
        return f"{words}, fill rate not known yet"
    if runway_s(mount) is None:
        return f"{words}, steady"
    runway = runway_words(mount, jobs, is_short=False)
    return ", ".join(filter(None, (words, f"+{format_bytes(rate)}/s", runway))) + need_words(mount, jobs)


def _quarantine(
    entries: list[SampleQuarantined], done: ExtractionAdvanced | None, palette: Palette
) -> list[RenderableType]:
    """How many for which reason, then the newest one by one."""
    count = max(0 if done is None else done.quarantined, len(entries))
    if not count:
        return []
    heading = f"\nQuarantined: {count:,} sample{'s' if count > 1 else ''} not in the store"
    parts: list[RenderableType] = [Text(heading, style=f"bold {palette.warning}")]
    reasons = [] if done is None else [(f"{each.samples:,} x", one_line(each.reason)) for each in done.reasons]
    if len(reasons) < count:
        parts.append(labelled_rows(reasons, palette, max((len(number) for number, _ in reasons), default=0)))
    rows = [(one_line(entry.sample_id), one_line(entry.reason)) for entry in entries[-_MOST_SHOWN:]]
    parts.append(labelled_rows(rows, palette, min(24, max((len(name) for name, _ in rows), default=0))))
    if count > len(rows):
        words = f"  {count - len(rows):,} more; `roost extraction show` has them all, each with its reason"
        parts.append(Text(words, style=palette.quiet))
    return parts
