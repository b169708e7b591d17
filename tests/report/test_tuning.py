"""A tuning's page and its plot, whatever a host says."""

import json
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from protocol_samples import TRIAL_REPORT, TUNING_REPORT

from console.report.plots import TRIALS, draw_tuning
from console.report.tuning import tuning_markdown
from console.report.writer import write_tuning
from remote.protocol.tuning import TuningReport


def test_the_winner_is_first_and_its_command_last() -> None:
    page = tuning_markdown(TUNING_REPORT, [TRIALS])
    assert page.startswith("# Tuning of embedded: trial 3")
    assert "speculation.num\\_steps=3" in page.splitlines()[2]
    assert "](trials.svg)" in page
    assert "1.09x (1.02 to 1.15)" in page
    assert page.rstrip().endswith("```")


def test_without_a_winner_there_is_no_command() -> None:
    none = msgspec.structs.replace(TUNING_REPORT, winner=None, reason="not surely faster")
    page = tuning_markdown(none)
    assert page.startswith("# Tuning of embedded: no winner")
    assert "Not surely faster." in page
    assert "command" not in page


def test_the_winner_s_command_is_one_that_a_shell_takes_and_nothing_else() -> None:
    words = ["python", "-m", "engine", "--name", "a\x1b[2J\n`rm` $(id)"]
    won = msgspec.structs.replace(TRIAL_REPORT, command=words, environment={"A": "b c"})
    page = tuning_markdown(msgspec.structs.replace(TUNING_REPORT, trials=[won], winner=won.number))
    assert "\x1b" not in page
    fenced = page.partition("```sh\n")[2].partition("\n```")[0]
    told = shlex.split(fenced.replace("\\\n", ""))
    assert told[:6] == ["env", "A=b c", "python", "-m", "engine", "--name"]
    assert len(told) == 7
    assert "$(id)" in told[6]


def test_words_of_a_host_are_harmless() -> None:
    evil = msgspec.structs.replace(TRIAL_REPORT, reason="<script>|\x1b[31m`", settings={"a|b": "<i>"})
    page = tuning_markdown(msgspec.structs.replace(TUNING_REPORT, trials=[evil]))
    assert "\\<script\\>\\|" in page
    assert "\x1b" not in page


def test_the_plot_shows_what_was_measured() -> None:
    (content,) = draw_tuning(TUNING_REPORT).values()
    assert ET.fromstring(content).tag.endswith("svg")
    assert draw_tuning(TUNING_REPORT) == draw_tuning(TUNING_REPORT)
    unmeasured = msgspec.structs.replace(TRIAL_REPORT, measurements=[])
    assert draw_tuning(msgspec.structs.replace(TUNING_REPORT, trials=[unmeasured])) == {}


@pytest.mark.parametrize("again", [False, True])
def test_it_is_written_as_a_directory(tmp_path: Path, again: bool) -> None:
    for _ in range(1 + again):
        written = write_tuning(TUNING_REPORT, tmp_path / "out")
    assert [path.name for path in written] == ["report.md", "tuning.json", "trials.svg"]
    assert msgspec.convert(json.loads(written[1].read_bytes()), TuningReport) == TUNING_REPORT
