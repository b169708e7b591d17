"""The lines of a recording: one JSON object each, with the seconds since the recording's beginning."""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.frames import Event
from remote.protocol.reports import RunPlan, VerdictReport
from remote.protocol.requests import JobList, Welcome
from remote.protocol.telemetry import GpuTopology

FORMAT_VERSION = 1


class RecordingStarted(Message, frozen=True, kw_only=True):
    """The first line: which host, and second 0 on its clock."""

    format: int = FORMAT_VERSION
    host: str
    began_at: float


class RecordingEnded(Message, frozen=True, kw_only=True):
    """The last line of a recording that was ended in order."""

    reason: Literal["job over", "interrupted", "long enough", "link closed"]


class LinkUp(Message, frozen=True, kw_only=True):
    """The link was made, or its latency measured anew."""

    latency_s: float
    welcome: Welcome


class LinkLost(Message, frozen=True, kw_only=True):
    """The link broke."""

    reason: str
    retry_in_s: float


class LinkConnecting(Message, frozen=True, kw_only=True):
    """An attempt to connect began."""

    attempt: int


class Recorded(Message, frozen=True, kw_only=True):
    """One thing that happened `at` seconds after the recording began; plans and verdicts are answers to be given later.

    The lines are in the order in which they came; what was back-filled may be older than the line before it.
    """

    at: float
    what: (
        Event
        | LinkUp
        | LinkLost
        | LinkConnecting
        | JobList
        | RunPlan
        | VerdictReport
        | GpuTopology
        | RecordingStarted
        | RecordingEnded
    )
