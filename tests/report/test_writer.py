"""The report is a directory that explains itself: page, figures and the plots that the page names."""

import re
from pathlib import Path

import msgspec
import pytest

from console.errors import UsageError
from console.report.writer import write_verdict
from remote.protocol.reports import VerdictReport
from tests.report.verdicts import verdict


def test_the_page_names_the_plots_that_lie_beside_it(tmp_path: Path) -> None:
    written = write_verdict(verdict(), tmp_path / "new/report")
    page = written[0].read_text(encoding="utf-8")
    named = set(re.findall(r"!\[[^]]*\]\(([^)]+)\)", page))
    assert named == {path.name for path in written if path.suffix == ".svg"} != set()
    assert {path.name for path in (tmp_path / "new/report").iterdir()} == {path.name for path in written}
    figures = msgspec.json.decode((tmp_path / "new/report/verdict.json").read_bytes(), type=VerdictReport)
    assert figures == verdict()


def test_a_second_report_replaces_the_first(tmp_path: Path) -> None:
    write_verdict(verdict(), tmp_path)
    write_verdict(verdict(decision="reject"), tmp_path)
    assert (tmp_path / "report.md").read_text().startswith("# Verdict of kimi: reject")


def test_a_directory_that_is_a_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_verdict(verdict(), tmp_path / "file")
