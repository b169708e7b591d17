"""`roost verdict`: in words, as a document, as a page, as a directory to send."""

import json
import subprocess
import sys
from pathlib import Path

from console.cli.text import verdict_lines
from tests.report.verdicts import verdict


def test_it_is_told_in_words_and_as_a_document(played_host, roost) -> None:
    told = roost("verdict", "run-1")
    assert told.exit_code == 0
    assert "verdict            reject" in told.stdout
    document = json.loads(roost("verdict", "run-1", "--json").stdout)
    assert document["verdict"]["decision"] == "reject"
    assert document["verdict"]["levels"][0]["concurrency"] == 1


def test_the_page_goes_to_stdout_or_with_plots_into_a_directory(played_host, roost, tmp_path: Path) -> None:
    page = roost("verdict", "run-1", "--markdown").stdout
    assert page.startswith("# Verdict of embedded: reject")
    written = roost("verdict", "run-1", "--output", str(tmp_path / "out"))
    assert written.exit_code == 0
    assert written.stdout == ""
    assert "report.md" in written.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"report.md", "verdict.json", "speedup.svg"}


def test_a_directory_that_cannot_be_written_is_a_usage_error(played_host, roost, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert roost("verdict", "run-1", "--output", str(tmp_path / "file"), "--json").exit_code == 2


def test_a_rejected_drafter_is_told_with_what_to_look_at_in_its_order() -> None:
    lines = verdict_lines(verdict(decision="reject"))
    look = [line for line in lines if line.startswith("look at")]
    assert [line.split()[2] for line in look] == ["1", "2", "3"]
    assert "training against serving (look here): too little" in look[2]
    assert any(line.startswith("4 at a time") and "1.30x" in line for line in lines)
    assert any("does not count" in line for line in lines if line.startswith("16 at a time"))
    assert not any(line.startswith("look at") for line in verdict_lines(verdict()))


def test_no_plotting_is_loaded_before_a_plot_is_drawn() -> None:
    script = "import sys, console.cli.main, console.report.markdown; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
