"""What can be asked of a server that a job runs: one HTTP request through the host's connection."""

from urllib.parse import urlsplit

from console.errors import ConsoleError, UsageError
from console.link.engine_http import HttpReply, exchange
from console.operations import Session, get_job, read_progress
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import JobId
from remote.protocol.jobs import Job, is_over
from remote.protocol.progress import ServerReady

REQUEST_TIMEOUT_S = 60.0


async def request_server(
    session: Session, job_id: JobId, path: str, *, body: bytes | None = None, timeout_s: float = REQUEST_TIMEOUT_S
) -> HttpReply:
    """GET `path` from the server of a job, or POST a JSON body to it.

    Raises a precondition where the server is not up yet, has ended, or the job is no server; ConnectionFailed where it does
    not answer.
    """
    if not path.startswith("/") or any(not 0x21 <= ord(character) <= 0x7E for character in path):
        raise UsageError(f"{path!r} is no path of a server", hint="such as /v1/models, /get_server_info or /metrics")
    job = await get_job(session, job_id)
    if job.agent != "server":
        raise _unmet(f"{job_id} is no server but a {job.agent} job", next_command="roost jobs")
    if is_over(job.state):
        raise _unmet(f"the server of {job_id} has ended", next_command=f"roost status {job_id}")
    port = await _port(session, job)
    stream = await session.open_port(port)
    return await exchange(stream, f"127.0.0.1:{port}", path, body=body, timeout_s=timeout_s)


async def _port(session: Session, job: Job) -> int:
    ready: ServerReady | None = None
    seen = 0
    while records := await read_progress(session, job.job_id, after_seq=seen):
        seen = records[-1].seq
        ready = next((r.event for r in reversed(records) if isinstance(r.event, ServerReady)), ready)
    if ready is None:
        raise _unmet(f"the server of {job.job_id} is not up yet", next_command=f"roost logs {job.job_id} --follow")
    port = urlsplit(ready.url).port
    if port is None:
        raise _unmet(f"the server of {job.job_id} reported no port: {ready.url}")
    return port


def _unmet(message: str, *, next_command: str | None = None) -> ConsoleError:
    return ConsoleError(ErrorInfo(code=ErrorCode.PRECONDITION, message=message, next_command=next_command))
