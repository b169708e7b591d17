"""Pages of a log with the secrets covered: offsets stay true, and a value that straddles two pages is covered in both."""

from pathlib import Path

from remote.jobs import logs
from remote.jobs.logs import LogBytes
from remote.redaction import Redactor


def read_log(path: Path, offset: int | None, limit: int, redactor: Redactor, *, may_grow: bool) -> LogBytes:
    """As `logs.read_log`, with every value covered; the beginning of a value whose rest is not there yet is kept back."""
    if not redactor:
        return logs.read_log(path, offset, limit)
    margin = redactor.margin
    limit = min(limit, logs.MAX_LOG_PAGE_BYTES - 2 * margin)
    asked = logs.read_log(path, offset, limit)
    before = min(margin, asked.offset - asked.start)
    window = logs.read_log(path, asked.offset - before, before + max(0, limit) + margin)
    begin = max(asked.offset, window.offset) - window.offset
    data = redactor.page(window.data, begin, begin + max(0, limit), may_grow=may_grow)
    return LogBytes(window.offset + begin, data, window.start, window.size)
