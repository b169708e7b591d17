"""Whether the kernel's out-of-memory killer was at work: nothing else tells its SIGKILL from anybody's. Standard library only.

Read from the memory cgroup of this process: `memory.events` (cgroup v2) or `memory.oom_control` (v1), field `oom_kill`;
without either, from `/proc/vmstat`, which counts for the whole machine. (Linux: Documentation/admin-guide/cgroup-v2.rst.)
"""

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def count_oom_kills() -> int | None:
    """How many processes it has killed so far; None where the kernel does not say."""
    for path in (*_counters(Path("/proc/self/cgroup")), Path("/proc/vmstat")):
        count = _read_count(path)
        if count is not None:
            return count
    return None


def _counters(membership: Path) -> list[Path]:
    """Where the counters of this process's cgroup may be; a container sees its own group as the root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for _, controllers, group in (line.split(":", 2) for line in lines):
        below = group.lstrip("/")
        if not controllers:
            found += [_CGROUPS / below / "memory.events", _CGROUPS / "memory.events"]
        elif "memory" in controllers.split(","):
            memory = _CGROUPS / "memory"
            found += [memory / below / "memory.oom_control", memory / "memory.oom_control"]
    return found


def _read_count(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
