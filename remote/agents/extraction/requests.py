"""One sample through the capturing server: asked for, waited for, checked; tried again where that may help."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import httpx

from remote.agents.extraction.dialects import CaptureDialect
from remote.agents.extraction.spool import Spooled, raise_plugin_error, read_spooled
from remote.artifacts.quarantine import Quarantined
from remote.artifacts.store_plan import Planned
from remote.errors import WorkFailed

_SPOOL_TIMEOUT_S = 60.0
_SPOOL_POLL_S = 0.005
_LOOK_S = 0.5
_FIRST_RETRY_S = 0.2
_NAMED = 16


class Captured(NamedTuple):
    """A checked sample, its states still in the spool file at `path`."""

    spooled: Spooled
    path: Path


class _Unfit(Exception):
    """This attempt at the sample failed; `final` when another would, too."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Requester:
    """Asks for samples; `wait_for_room` waits while the server finds none for what it captured, and says whether it did not."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        spool: Path,
        prefix: str,
        *,
        dialect: CaptureDialect,
        layers: int,
        attempts: int,
        wait_for_room: Callable[[], Awaitable[bool]],
    ) -> None:
        self._client = client
        self._spool = spool
        self._prefix = prefix
        self._dialect = dialect
        self._layers = layers
        self._attempts = attempts
        self._wait_for_room = wait_for_room
        self._under_way: list[str] = []
        self._unanswered = ""

    async def capture(self, position: int, item: Planned) -> Captured | Quarantined:
        """The states of a sample, or why there are none to be had. Raises WorkFailed when the server itself is at fault."""
        reasons: list[str] = []
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(_FIRST_RETRY_S * 2 ** (attempt - 1))
            await self._wait_for_room()
            try:
                return await self._attempt(f"roost-{self._prefix}-{position}-{attempt}", item)
            except _Unfit as unfit:
                reasons.append(str(unfit))
                if unfit.final:
                    break
        tried = "" if len(reasons) == 1 else f" ({len(reasons)} attempts)"
        return Quarantined(sample_id=item.sample_id, reason=f"{reasons[-1]}{tried}")

    async def _attempt(self, request_id: str, item: Planned) -> Captured:
        body = self._dialect.body(request_id, item.input_ids.tolist())
        self._under_way.append(item.sample_id)
        try:
            response = await self._client.post(self._dialect.path, json=body)
        except httpx.HTTPError as error:
            raise_plugin_error(self._spool)
            # Whichever is told of first: any of those under way then may be what ended it.
            self._unanswered = self._unanswered or ", ".join(self._under_way[:_NAMED])
            raise WorkFailed(
                f"the server did not answer ({type(error).__name__}); it was asked for {self._unanswered}",
                hint="see the server's log; what ends it again and again is one of these samples",
            ) from error
        finally:
            self._under_way.remove(item.sample_id)
        if response.status_code != httpx.codes.OK:
            raise _Unfit(
                f"the server refused it: {response.status_code} {response.text[:300]}",
                final=response.is_client_error and response.status_code != httpx.codes.TOO_MANY_REQUESTS,
            )
        cached = self._dialect.cached_tokens(response.json())
        if cached:
            raise WorkFailed(
                f"sample {item.sample_id}: {cached} tokens came from the prefix cache, their states are missing",
                hint="start the server without a cache of prefixes",
            )
        path = self._spool / f"{request_id}.safetensors"
        await self._wait_for(path)
        try:
            return Captured(await asyncio.to_thread(read_spooled, path, item, self._layers), path)
        except WorkFailed as error:
            path.unlink(missing_ok=True)
            raise _Unfit(error.info.message) from error

    async def _wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + _SPOOL_TIMEOUT_S
        look_at = time.monotonic() + _LOOK_S
        while not path.exists():
            raise_plugin_error(self._spool)
            if time.monotonic() > look_at:
                waited = await self._wait_for_room()
                look_at = time.monotonic() + _LOOK_S
                deadline = look_at + _SPOOL_TIMEOUT_S if waited else deadline
            if time.monotonic() > deadline:
                raise WorkFailed(f"the capture plugin never wrote {path.name}", hint="see the server's log")
            await asyncio.sleep(_SPOOL_POLL_S)
