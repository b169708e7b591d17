"""Which tool does what a verb does, so that an error that names a command tells an agent what to call."""

from msgspec import structs

from remote.protocol.errors import ErrorInfo

COUNTERPARTS = {
    "approvals list": "list_approvals",
    "approvals wait": "wait_for_approval",
    "jobs": "list_jobs",
    "logs": "read_log",
    "plan": "plan_run",
    "secrets list": "list_secrets",
    "server start": "start_server",
    "status": "get_job",
    "storage usage": "read_storage",
    "telemetry": "read_telemetry",
    "vocabulary inspect": "inspect_mapping",
    "wait": "wait_for_job",
}
"""The verbs that errors send to, and the tools for them."""


def for_agents(info: ErrorInfo) -> ErrorInfo:
    """The error with the tool that stands for its next command in the hint, where there is one."""
    words = (info.next_command or "").split()[1:3]
    tool = COUNTERPARTS.get(" ".join(words)) or COUNTERPARTS.get(" ".join(words[:1]))
    if tool is None:
        return info
    said = f"the tool for it is {tool}"
    return structs.replace(info, hint=said if info.hint is None else f"{info.hint}; {said}")
