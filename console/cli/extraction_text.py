"""What `roost extraction` says to people."""

from console.cli.text import progress_line, state_words
from console.state.sanitize import one_line
from console.state.units import format_bytes, format_percent
from remote.protocol.progress import ExtractionPlanned, ProgressRecord, QuarantineReason
from remote.protocol.reports import ExtractionReport


def extraction_plan_lines(plan: ExtractionPlanned) -> list[str]:
    """What an extraction would write, and a sample as it would be learned from."""
    kept = f", of which {format_bytes(plan.keep_free_bytes)} are to stay free" if plan.keep_free_bytes else ""
    inodes = "" if plan.inodes_free is None else f" and room for {plan.inodes_free:,} files"
    return [
        f"samples  {plan.samples:,}" + (f", {plan.cut:,} of them cut" if plan.cut else ""),
        *([f"unfit    {plan.unfit:,}, to be quarantined"] if plan.unfit else []),
        *(f"  {one_line(one.sample_id)}: {one_line(one.reason)}" for one in plan.unfit_samples),
        *(["  …"] if plan.unfit > len(plan.unfit_samples) else []),
        f"tokens   {plan.tokens:,}, of which {plan.loss_tokens:,} count ({format_percent(plan.loss_tokens / max(1, plan.tokens))})",
        f"store    {format_bytes(plan.bytes_total)} in {plan.shards:,} shards",
        f"to write {format_bytes(plan.bytes_needed)} in {plan.inodes_needed:,} files; the disk has {format_bytes(plan.bytes_free)}{kept}{inodes}",
        *(
            []
            if plan.fits
            else ["         it does not fit: free space there, name another run directory, or lower data.max_samples"]
        ),
        f"sample   {one_line(plan.sample_id)}",
        *(f"  {one_line(line)}" for line in plan.sample_text.splitlines()),
    ]


def extraction_report_lines(report: ExtractionReport) -> list[str]:
    """An extraction as it is now: what is there, how it goes, the disk, and what is left out for which reason."""
    complete = "complete" if report.finished else "not complete"
    lines = [f"store    {one_line(report.store)}, {complete}"]
    if report.job is not None:
        lines.append(f"job      {report.job.job_id}: {state_words(report.job.state)}")
    held = f"{report.samples:,} samples, {report.tokens:,} tokens, {format_bytes(report.bytes)}"
    lines.append(f"holds    {held} in {report.shards:,} complete shards")
    if report.advanced is not None and report.sampled_at is not None:
        lines.append(f"told     {progress_line(ProgressRecord(seq=0, at=report.sampled_at, event=report.advanced))}")
    if (plan := report.planned) is not None:
        share = format_percent(plan.loss_tokens / max(1, plan.tokens))
        size = f"{format_bytes(plan.bytes_total)} in {plan.shards:,} shards"
        to_write = f"{format_bytes(plan.bytes_needed)} in {plan.inodes_needed:,} files were to be written at its start"
        lines.append(f"planned  {plan.samples:,} samples, {plan.tokens:,} tokens, of which {share} count; {size}")
        lines.append(f"         {to_write}, with {_room(plan.bytes_free, plan.inodes_free)}")
    lines.append(f"disk now {_room(report.bytes_free, report.inodes_free)}")
    return lines + _quarantine_lines(report)


def _room(bytes_free: int, inodes_free: int | None) -> str:
    return f"{format_bytes(bytes_free)}{'' if inodes_free is None else f' and room for {inodes_free:,} files'} free"


def _quarantine_lines(report: ExtractionReport) -> list[str]:
    if not report.quarantined:
        return ["left out no sample"]
    return [
        f"left out {report.quarantined:,} {'sample' if report.quarantined == 1 else 'samples'}",
        *(f"  {_reason_words(reason)}" for reason in report.reasons),
        *(f"    {one_line(entry.sample_id)}: {one_line(entry.reason)}" for entry in report.quarantine),
        *([f"    and {report.omitted:,} more: --limit shows them, too"] if report.omitted else []),
    ]


def _reason_words(reason: QuarantineReason) -> str:
    return f"{reason.samples:,} x {one_line(reason.reason)}"
