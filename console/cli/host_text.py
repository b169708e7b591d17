"""The page of `roost hosts check`."""

from console.state.host_check import REQUIRED, USEFUL, HostCheck, Interpreter, MachineFacts, RootFacts
from console.state.units import format_bytes


def host_check_lines(check: HostCheck) -> list[str]:
    """Facts first, then what is wrong and what to do."""
    lines = [
        f"host      {check.host}: {check.login}, round trip {check.latency_s * 1000:.0f} ms",
        f"machine   {_machine(check.probe.machine)}",
        f"root      {_root(check.probe.root)}",
        "python",
        *(line for python in check.probe.pythons for line in _python(python, chosen=python.path == check.python)),
        "",
    ]
    for finding in check.findings:
        lines.append(f"{'✗' if finding.level == 'error' else '!'} {finding.text}")
        if finding.hint:
            lines.append(f"    {finding.hint}")
    lines.append("✓ Roost can run there." if check.usable else "✗ Roost cannot run there yet.")
    return lines


def _machine(machine: MachineFacts) -> str:
    devices = f"{machine.gpus} NVIDIA devices" if machine.gpus else "no NVIDIA devices"
    kind = "a container, " if machine.container else ""
    return f"{kind}{machine.cores} cores, {format_bytes(machine.memory_bytes)} memory, {devices} ({machine.system})"


def _root(root: RootFacts) -> str:
    state = "" if root.exists else ", not there yet"
    inodes = "" if root.free_inodes is None else f", {root.free_inodes:,} inodes"
    flags = ", noexec" if root.noexec else ""
    return f"{root.path} ({root.file_system}{flags}{state}): {format_bytes(root.free_bytes)}{inodes} free"


def _python(python: Interpreter, *, chosen: bool) -> list[str]:
    mark = "✓" if chosen else " "
    if python.version is None:
        return [f"  {mark} {python.path}: does not run ({python.error})"]
    has = [f"{name} {python.packages[name]}" for name in (*REQUIRED, *USEFUL) if python.packages.get(name)]
    lacks = python.lacks()
    lines = [f"  {mark} {python.path}  {python.version}"]
    if has:
        lines.append(f"      has   {', '.join(has)}")
    if lacks:
        lines.append(f"      lacks {', '.join(lacks)}")
    return lines
