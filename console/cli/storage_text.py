"""The pages of `roost storage`."""

import time

from console.state.disk_shares import bytes_elsewhere
from console.state.units import format_bytes
from remote.protocol.storage import ReclaimPlan, StorageReport, TrashEntry


def report_lines(report: StorageReport) -> list[str]:
    """Mounts, then every entry, the largest first, then the trash."""
    elsewhere = bytes_elsewhere(report)
    lines = [
        f"{mount.path}: {format_bytes(mount.free_bytes)} of {format_bytes(mount.total_bytes)} free"
        + ("" if mount.free_inodes is None else f", {mount.free_inodes:,} inodes")
        + f"; {format_bytes(elsewhere[mount.path])} in use by what is not listed here"
        for mount in report.mounts
    ]
    lines += ["", f"{'size':>10}  {'files':>8}  {'kind':<11} path"]
    for entry in report.entries:
        users = f" by {', '.join(entry.used_by)}" if entry.used_by else ""
        note = f"  ({entry.kept_because}{users})" if entry.kept_because else ""
        lines.append(f"{format_bytes(entry.bytes):>10}  {entry.files:>8,}  {entry.kind:<11} {entry.path}{note}")
    return [*lines, "", *trash_lines(report.trash)]


def trash_lines(trash: list[TrashEntry]) -> list[str]:
    """The trash, or that it is empty."""
    if not trash:
        return ["the trash is empty"]
    lines = ["in the trash:"]
    for entry in trash:
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.trashed_at))
        size = f"{format_bytes(entry.bytes):>10}  {entry.files:>8,}"
        lines.append(f"{size}  {entry.name}  from {entry.origin}, {when} UTC by {entry.trashed_by}")
    return lines


def plan_lines(plan: ReclaimPlan, host: str) -> list[str]:
    """What would go, what would stay and why; nothing where something forbids it."""
    if plan.problems:
        return []
    lines = [f"on {host}, into the trash: {format_bytes(plan.bytes)} in {plan.files:,} files"]
    lines += [f"  {path}" for path in plan.paths]
    lines += [f"  stays: {item.path} ({item.reason})" for item in plan.kept]
    until = time.strftime("%H:%M:%S", time.gmtime(plan.expires_at))
    return [*lines, f"plan {plan.token}, good until {until} UTC"]
