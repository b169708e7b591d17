"""The MCP server on standard input and output, with the official SDK."""

import asyncio
import contextlib
import time
from importlib.metadata import version
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from console import operations, operations_approvals
from console.cli.mcp.arguments import schema_of_arguments
from console.cli.mcp.counterparts import for_agents
from console.cli.mcp.sessions import Sessions
from console.cli.mcp.tool import Tool
from console.cli.mcp.tools import TOOLS
from console.cli.text import progress_line
from console.config.policy import Policy, allows, stricter
from console.documents import SCHEMA_VERSION, log_text, schema_of
from console.errors import (
    ApprovalAwaited,
    ConfirmationNeeded,
    ConnectionFailed,
    ConsoleError,
    HostError,
    UnknownHostKey,
    UsageError,
)
from console.report.markdown import verdict_markdown
from console.state.link import LinkState
from console.state.sanitize import one_line
from console.state.units import format_bytes
from remote.protocol.bulk import BulkAdvanced
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import is_job_id
from remote.protocol.jobs import Job
from remote.protocol.progress import ProgressRecord

INSTRUCTIONS = (
    "Roost trains EAGLE-3 drafters on GPU hosts. Look first (list_jobs, read_storage, plan_run), then plan_run and apply_plan with its "
    "fingerprint; wait_for_job follows the run, read_verdict says whether the drafter helps. Every error has a code, a hint and what "
    "to do next. What ends or moves something needs `confirm` or the token of a plan: ask a person before you give it. Without one, and "
    "where the policy of a host allows less, the call goes into the host's inbox: the error names an approval_id, and wait_for_approval "
    "says what a person decided."
)

LARGEST_SCHEMA = 16_384
"""Longer schemas of answers are left to the resource `roost://schemas/NAME`, so that a list of the tools stays readable."""

_LOG_TAIL = 65_536
_TRANSFER_TELLS_S = 1.0
_TEMPLATES = (
    ("roost://{host}/jobs/{job_id}/log", "The end of a job's log", "text/plain"),
    ("roost://{host}/jobs/{job_id}/verdict", "A run's verdict as a page", "text/markdown"),
    ("roost://schemas/{document}", "The JSON Schema of a document", "application/schema+json"),
)

Context = ServerRequestContext[Any]


class Front:
    """Answers one client; `most` bounds what every host's own policy allows."""

    def __init__(self, sessions: Sessions, most: Policy) -> None:
        self._sessions = sessions
        self._most: Policy = most
        self._tools = {tool.name: tool for tool in TOOLS}

    async def list_tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Every tool, also those that a host's policy refuses: hosts differ."""
        return types.ListToolsResult(tools=[describe(tool) for tool in TOOLS])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Carry out a tool; what goes wrong is an `error` document."""
        try:
            document = await self._carry_out(context, params.name, params.arguments or {})
        except ConsoleError as error:
            return _result(
                {"schema_version": SCHEMA_VERSION, "error": msgspec.to_builtins(for_agents(error.info))}, is_error=True
            )
        return _result(document, is_error=False)

    async def list_resources(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        """None by name: which jobs there are, `list_jobs` says."""
        return types.ListResourcesResult(resources=[])

    async def list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Logs, verdicts and schemas."""
        templates = [
            types.ResourceTemplate(name=title, uri_template=template, mime_type=kind)
            for template, title, kind in _TEMPLATES
        ]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """A log's end, a verdict, a schema; raises ValueError with the host's words."""
        uri = str(params.uri)
        try:
            kind, text = await self._read(context, uri)
        except ConsoleError as error:
            raise ValueError(error.info.message) from error
        content = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[content])

    async def _carry_out(self, context: Context, name: str, given: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(name)
        if tool is None:
            raise UsageError(f"there is no tool {name!r}", hint=f"there are {', '.join(self._tools)}")
        try:
            asked = msgspec.convert(given, tool.takes)
        except msgspec.ValidationError as error:
            raise UsageError(f"{name}: {error}") from None
        actor = _actor(context)
        if tool.is_hostless:
            payload = await tool.work(None, asked, _silent)
        else:
            payload = await self._work_or_ask(context, tool, asked, actor)
        return {"schema_version": SCHEMA_VERSION, tool.document: msgspec.to_builtins(payload)}

    async def _work_or_ask(self, context: Context, tool: Tool, asked: Any, actor: str) -> Any:  # noqa: ANN401 - as below
        """Carry a tool out, or put its change into the host's inbox; what is refused here is put on the host's record."""
        try:
            why = self._beyond_policy(tool, asked.host)
            if why is None:
                try:
                    return await self._work(context, tool, asked, actor)
                except ConfirmationNeeded as needed:
                    if isinstance(needed, UnknownHostKey) or getattr(asked, "confirm", None) is not None:
                        raise
                    why = needed.info.message
            if not tool.can_be_asked:
                raise _not_allowed(why)
            with operations_approvals.petitioning(why):
                return await self._work(context, tool, asked, actor)
        except (ApprovalAwaited, HostError, ConnectionFailed, UnknownHostKey):
            raise
        except ConsoleError as error:
            if tool.needs != "read-only":
                await self._record(tool, asked, actor, error)
            raise

    async def _record(self, tool: Tool, asked: Any, actor: str, error: ConsoleError) -> None:  # noqa: ANN401 - as below
        with contextlib.suppress(ConsoleError):
            session = await self._sessions.get(asked.host, actor)
            summary = msgspec.json.encode(asked).decode()
            await operations_approvals.record_refusal(session, tool.name, summary, error.info)

    async def _work(self, context: Context, tool: Tool, asked: Any, actor: str) -> Any:  # noqa: ANN401 - the tool's own
        try:
            if not tool.is_long:
                return await tool.work(await self._sessions.get(asked.host, actor), asked, _silent)
            # What a session streams is for one listener: who waits has a session of his own.
            async with operations.open_host(asked.host, actor=actor) as session, _Progress(context) as progress:
                return await tool.work(session, asked, progress)
        except ConsoleError as error:
            error.name_host(asked.host)
            raise

    def _beyond_policy(self, tool: Tool, host: str) -> str | None:
        """Why agents may not do this themselves; None where they may."""
        policy = stricter(self._most, operations.agent_policy(host))
        if allows(policy, tool.needs):
            return None
        return f"{tool.name} needs the policy {tool.needs!r}, on {host} agents have {policy!r}"

    async def _read(self, context: Context, uri: str) -> tuple[str, str]:
        parts = urlsplit(uri)
        words = [unquote(word) for word in parts.path.split("/") if word]
        if parts.scheme != "roost" or not words:
            raise UsageError(f"{uri} is no resource of Roost")
        if parts.netloc == "schemas":
            return _TEMPLATES[2][2], msgspec.json.format(msgspec.json.encode(_schema(words[0])), indent=1).decode()
        if len(words) != 3 or words[0] != "jobs" or not is_job_id(words[1]):
            raise UsageError(f"{uri} is no resource of Roost")
        session = await self._sessions.get(unquote(parts.netloc), _actor(context))
        match words[2]:
            case "log":
                page = await operations.read_log(session, words[1], offset=None, limit=_LOG_TAIL)
                return "text/plain", log_text(page).text
            case "verdict":
                return "text/markdown", verdict_markdown(await operations.read_verdict(session, words[1]), [])
            case _:
                raise UsageError(f"{uri} is no resource of Roost")


class _Progress:
    """Tells the client of the progress of a job or a transfer while something waits, in order."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told: asyncio.Queue[str | None] = asyncio.Queue()
        self._next = 0.0

    def __call__(self, event: Job | ProgressRecord | LinkState | BulkAdvanced) -> None:
        match event:
            case ProgressRecord():
                self._told.put_nowait(one_line(progress_line(event)))
            case BulkAdvanced(bytes_done=done, bytes_total=total) if time.monotonic() >= self._next:
                self._next = time.monotonic() + _TRANSFER_TELLS_S
                self._told.put_nowait(f"{format_bytes(done)} of {format_bytes(total)}")
            case _:
                pass

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._pass_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._told.put_nowait(None)
        await self._task

    async def _pass_on(self) -> None:
        count = 0
        while (text := await self._told.get()) is not None:
            count += 1
            await self._context.session.report_progress(float(count), None, text)


def describe(tool: Tool) -> types.Tool:
    """A tool as the protocol has it."""
    looks_only = tool.needs == "read-only"
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema_of_arguments(tool.takes),
        output_schema=_short_schema(tool.document),
        annotations=types.ToolAnnotations(
            read_only_hint=looks_only,
            destructive_hint=tool.is_destructive,
            idempotent_hint=looks_only or tool.is_idempotent,
            open_world_hint=False,
        ),
    )


def _short_schema(document: str) -> dict[str, Any]:
    schema = schema_of(document)
    if len(msgspec.json.encode(schema)) <= LARGEST_SCHEMA:
        return schema
    outline = {"description": f"see the resource roost://schemas/{document}"}
    return {
        "type": "object",
        "properties": {"schema_version": {"const": SCHEMA_VERSION}, document: outline},
        "required": ["schema_version", document],
    }


def _schema(document: str) -> dict[str, Any]:
    try:
        return schema_of(document)
    except KeyError:
        raise UsageError(f"there is no document {document!r}") from None


def _result(document: dict[str, Any], *, is_error: bool) -> types.CallToolResult:
    text = types.TextContent(type="text", text=msgspec.json.encode(document).decode())
    return types.CallToolResult(content=[text], structured_content=document, is_error=is_error)


def _actor(context: Context) -> str:
    client = context.session.client_params
    name = one_line(client.client_info.name)[:60] if client is not None else ""
    return f"mcp:{name or 'unknown'}"


def _not_allowed(why: str) -> ConsoleError:
    hint = "a person can do it, or allow it: `agents` of the host in roost.toml, `--policy` of roost mcp"
    return ConsoleError(ErrorInfo(code=ErrorCode.PRECONDITION, message=why, hint=hint))


def _silent(_: Job | ProgressRecord | LinkState | BulkAdvanced) -> None:
    """Nobody listens."""


async def serve(most: Policy) -> None:
    """Serve one client until it hangs up."""
    async with Sessions() as sessions:
        front = Front(sessions, most)
        server: Server[Any] = Server(
            "roost",
            version=version("roost"),
            instructions=INSTRUCTIONS,
            on_list_tools=front.list_tools,
            on_call_tool=front.call_tool,
            on_list_resources=front.list_resources,
            on_list_resource_templates=front.list_templates,
            on_read_resource=front.read_resource,
        )
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
