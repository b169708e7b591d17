"""When the screen itself fails: a report to send to somebody, without secrets and without the values of variables."""

import os
import platform
import time
import traceback
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from console.config.locations import state_directory
from console.state.sanitize import one_line, sanitize
from remote.redaction import Redactor

_MOST_REPORTS = 10
_TERMINAL = ("TERM", "COLORTERM", "TERM_PROGRAM", "NO_COLOR", "LANG")


def crash_directory() -> Path:
    """Where the reports lie."""
    return state_directory() / "crashes"


def crash_report(error: BaseException, facts: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """What happened and where, with every secret of `environment` covered and its home directory as `~`."""
    lines = [f"{name}: {value}" for name, value in facts.items()]
    lines += [f"{name}: {environment[name]}" for name in _TERMINAL if name in environment]
    text = "\n".join([*lines, "", "".join(traceback.format_exception(error))])
    text = sanitize(Redactor.of_environment(environment).redact_text(text))
    home = environment.get("HOME", "").rstrip("/")
    return text.replace(home, "~") if home else text


def write_crash_report(error: BaseException, facts: Mapping[str, str]) -> Path | None:
    """Keep a report for the person alone, beside the newest of those before; where it is, None where nothing can be written."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    about = {
        "time": now,
        "roost": version("roost"),
        "textual": version("textual"),
        "python": f"{platform.python_version()} on {platform.platform()}",
        **facts,
    }
    directory = crash_directory()
    path = directory / f"crash-{now}-{os.getpid()}.txt"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.write_text(crash_report(error, about, os.environ), encoding="utf-8")
        for old in sorted(directory.glob("crash-*.txt"))[:-_MOST_REPORTS]:
            old.unlink()
    except OSError:
        return None
    return path


def crash_words(error: BaseException, report: Path | None) -> str:
    """What a person reads in the terminal afterwards."""
    last = traceback.format_exception_only(error)[-1].strip()
    what = one_line(Redactor.of_environment(os.environ).redact_text(last))
    where = f"a report without secrets is in {report}" if report is not None else "no report of it could be written"
    return f"The screen has failed: {what}\nJobs on the host go on; `roost` shows them again. As to why, {where}.\n"
