"""What the verbs say to people; numbers come from `console.state.units`."""

import time
from collections.abc import Iterable, Mapping

from console.state.cost import Cost, cost_words
from console.state.progress_words import progress_words
from console.state.sanitize import one_line
from console.state.units import UNKNOWN, format_bytes, format_duration
from console.state.verdicts import CAUSES, causes_to_show, interval, load, outputs, positions, suspicion
from remote.protocol.ids import device_ranges
from remote.protocol.jobs import (
    Finished,
    Foreign,
    Job,
    JobState,
    Lost,
    Orphaned,
    Paused,
    Quarantined,
    Queued,
    Running,
    Stalled,
    Starting,
    Stopping,
    Unkillable,
    has_its_devices,
)
from remote.protocol.progress import ProgressRecord
from remote.protocol.reports import RunPlan, StagePlan, VerdictReport


def state_words(state: JobState) -> str:  # noqa: C901, PLR0911 - one case a state
    """A job's state in a few words."""
    match state:
        case Queued():
            return "queued"
        case Starting():
            return "starting"
        case Running(pid=pid):
            return f"running (pid {pid})"
        case Stalled(heartbeat_age_s=age):
            return f"stalled: its supervisor was last heard {format_duration(age)} ago"
        case Paused(reason=reason):
            return f"paused: {one_line(reason)}"
        case Stopping(requested_by=who):
            return f"stopping, asked by {one_line(who)}"
        case Finished(outcome=outcome, reason=reason):
            return outcome if outcome == "succeeded" or not reason else f"{outcome}: {one_line(reason)}"
        case Lost(reason=reason):
            return f"lost: {one_line(reason)}"
        case Orphaned(pid=pid):
            return f"orphaned: pid {pid} goes on without its supervisor"
        case Foreign():
            return "foreign: it belongs to another incarnation of this host"
        case Unkillable(pids=pids):
            return f"unkillable: {', '.join(map(str, pids))} survive SIGKILL"
        case Quarantined(reason=reason):
            return f"quarantined: {one_line(reason)}"


def job_table(jobs: Iterable[Job]) -> list[str]:
    """One line a job, under a heading."""
    rows = [("JOB", "AGENT", "CREATED (UTC)", "GPUS", "STATE")]
    for job in jobs:
        created = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(job.created_at))
        gpus = device_ranges(job.gpus) if has_its_devices(job.state) else ""
        rows.append((job.job_id, one_line(job.agent), created, gpus, state_words(job.state)))
    if len(rows) == 1:
        return ["no jobs on this host yet; `roost run embedded` starts the whole chain on the embedded host"]
    shown = [column for column in range(5) if column != 3 or any(row[3] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in shown}
    return ["  ".join(row[column].ljust(widths[column]) for column in shown).rstrip() for row in rows]


def job_lines(job: Job) -> list[str]:
    """One job in full."""
    lines = [
        f"job       {job.job_id}",
        f"agent     {one_line(job.agent)}" + (f"  (of {job.run_id})" if job.run_id else ""),
        f"state     {state_words(job.state)}",
        f"revision  {job.revision}",
        f"created   {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(job.created_at))} UTC by {one_line(job.created_by)}",
        f"command   {one_line(' '.join(job.command))}",
        f"log       {format_bytes(job.log_size)}",
    ]
    if job.gpus:
        kept = "" if has_its_devices(job.state) else "  (given back)"
        lines.append(f"gpus      {device_ranges(job.gpus)}{kept}")
    if job.last_progress is not None:
        lines.append(f"progress  {progress_line(job.last_progress)}")
    if job.result is not None:
        lines += [f"output    {one_line(f'{output.kind}: {output.path}')}" for output in job.result.outputs]
        lines += [f"          {line}" for line in summary_lines(job.result.summary)]
    return lines


def summary_lines(summary: Mapping[str, str | int | float | bool | None]) -> list[str]:
    """The figures of a finished job by their names in its JSON, in the units that the names say."""
    return [one_line(f"{name} = {_figure(name, value)}") for name, value in summary.items()]


def _figure(name: str, value: str | float | None) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(name, value)
    return {None: UNKNOWN, True: "yes", False: "no"}.get(value, str(value))


def _number(name: str, value: float) -> str:
    if name.startswith("bytes"):
        return format_bytes(value)
    if name == "seconds":
        return format_duration(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"


def progress_line(record: ProgressRecord) -> str:
    """A progress event as a line with its time of day (UTC)."""
    return f"{time.strftime('%H:%M:%S', time.gmtime(record.at))} {progress_words(record.event)}"


def plan_lines(plan: RunPlan, cost: Cost | None) -> list[str]:
    """The stages of a run with what each needs, then the problems."""
    lines = [
        f"run {plan.run.name} in {one_line(plan.directory)}",
        f"needs {format_bytes(plan.bytes_needed)}, {format_bytes(plan.bytes_free)} are free",
        *(
            []
            if plan.seconds is None
            else [f"takes about {format_duration(max(1.0, plan.seconds))}, as earlier runs did here"]
        ),
        *([] if cost is None else [f"costs {cost_words(cost)}"]),
        "",
    ]
    for stage in plan.stages:
        need = "" if stage.bytes_needed is None else format_bytes(stage.bytes_needed)
        lines.append(f"{stage.action:<7} {stage.stage:<11} {need:>9}  {one_line(stage.reason)}{_expected(stage)}")
        if stage.command and stage.action != "skip":
            lines.append(f"{'':29}  $ {one_line(' '.join(stage.command))}")
    lines += ["", *(f"problem: {one_line(problem)}" for problem in plan.problems)]
    lines += [f"risk: {one_line(risk)}" for risk in plan.risks]
    lines.append(f"fingerprint {plan.fingerprint}")
    return lines


def _expected(stage: StagePlan) -> str:
    if stage.seconds is None or stage.seconds_from is None or stage.seconds < 1:
        return ""
    return f"; about {format_duration(stage.seconds)}, by {one_line(stage.seconds_from)}"


def verdict_lines(verdict: VerdictReport) -> list[str]:
    """The verdict with both rates at each load, the reasons, and what to look at."""
    low, high = verdict.speedup_interval
    lines = [
        f"verdict            {verdict.decision}",
        f"without drafter    {verdict.baseline_tokens_per_s:.2f} tok/s",
        f"with drafter       {verdict.drafter_tokens_per_s:.2f} tok/s",
        f"speed-up           {verdict.speedup:.2f}x (95% interval {low:.2f}x to {high:.2f}x)",
    ]
    lines += [
        f"{load(level.concurrency):<18} {level.baseline_tokens_per_s:.2f} to {level.drafter_tokens_per_s:.2f} tok/s each, "
        f"{level.baseline_output_tokens_per_s:.1f} to {level.drafter_output_tokens_per_s:.1f} in all: {interval(level)}"
        for level in verdict.levels[1:]
    ]
    shares = f"; proposals accepted: {positions(verdict)}" if verdict.position_acceptance else ""
    lines.append(f"acceptance length  {verdict.acceptance_length:.2f} (bonus token included){shares}")
    if verdict.categories:
        found = (f"{one_line(one.category)} {one.acceptance_length:.2f}" for one in verdict.categories)
        lines.append(f"by category        {', '.join(found)}")
    lines += [
        f"coverage           {UNKNOWN if verdict.coverage is None else f'{verdict.coverage:.1%}'}",
        f"greedy outputs     {outputs(verdict)} ({one_line(f'{verdict.dtype}, {verdict.engine}')})",
    ]
    lines += [f"because            {one_line(reason)}" for reason in verdict.reasons]
    lines += [
        f"look at {place}          {CAUSES[cause.cause]} ({suspicion(cause)}): {one_line(cause.text)}"
        for place, cause in enumerate(causes_to_show(verdict), 1)
    ]
    lines += [f"advice             {one_line(advice)}" for advice in verdict.advice]
    return lines
