"""The page reads well, and whatever a host says is shown as words: never a link, a picture, HTML or a table's end."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from console.recording.reader import read_recording
from console.report.markdown import verdict_markdown
from console.state.sanitize import one_line
from remote.protocol.reports import VerdictReport
from tests.report.verdicts import verdict

PLOTS = ("speedup.svg", "acceptance.svg", "throughput.svg")
RECORDING = Path(__file__).parents[1] / "recordings/embedded_run.jsonl"


def parsed(page: str) -> list[Token]:
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(page)
    return [piece for token in tokens for piece in (token, *(token.children or []))]


def kinds(page: str) -> list[str]:
    return [token.type for token in parsed(page)]


def words(page: str) -> str:
    return " ".join(token.content for token in parsed(page) if token.type in ("text", "code_inline", "fence"))


def test_the_decision_comes_first_and_then_why() -> None:
    lines = verdict_markdown(verdict(), PLOTS).splitlines()
    assert lines[0] == "# Verdict of kimi: promote"
    assert lines[2:5] == ["**Promote**, because", "", "- surely faster plain"]


def test_every_level_and_category_has_its_row() -> None:
    page = verdict_markdown(verdict(), PLOTS)
    assert "| 4 | 80.00 | 104.00 | **1.30x** (1.25 to 1.35) | 2.40 | 1.85 | 200 → 250 | 0.1 → – | promote |" in page
    assert "| 16 | 70" not in page.split("whole server")[0]
    assert "inconclusive (does not count)" in page
    assert page.index("| stem |") < page.index("| coding |")
    assert "70% the 1st, 45% the 2nd, 25% the 3rd" in page


def test_what_is_not_known_is_said_to_be() -> None:
    page = verdict_markdown(verdict())
    assert "`d2t.npy` hash not known" in page
    assert "**Layer ids** (not known)" in page


def test_pictures_are_named_only_where_they_are() -> None:
    assert kinds(verdict_markdown(verdict(), PLOTS)).count("image") == 3
    assert kinds(verdict_markdown(verdict())).count("image") == 0


def test_an_old_verdict_without_levels_is_a_page_too() -> None:
    old = next(record.what for record in read_recording(RECORDING) if isinstance(record.what, VerdictReport))
    page = verdict_markdown(old)
    assert page.startswith("# Verdict: promote")
    assert "1.15 times" in page


HOSTILE = (
    "[click](http://evil) ![x](http://evil/p.png) <script>alert(1)</script> | cell | `tick` ``` **bold** _it_ $x$ \\",
    "a\n\n# heading\n\n- item\n```\nfence",
    "\x1b[31mred\x1b[0m \u202e",
    "&lt; &#x202e; <!-- c -->",
    "'; rm -rf / #",
    "-",
)


@pytest.mark.parametrize("word", HOSTILE)
def test_a_hosts_words_are_shown_as_they_are_and_obeyed_by_nobody(word: str) -> None:
    page, plain = verdict_markdown(verdict(word), PLOTS), verdict_markdown(verdict(), PLOTS)
    assert one_line(word) in words(page).replace("\\|", "|")
    assert [kind for kind in kinds(page) if kind != "text"] == [kind for kind in kinds(plain) if kind != "text"]


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_no_word_changes_the_form_of_the_page(word: str) -> None:
    form = [kind for kind in kinds(verdict_markdown(verdict(f"w{word}w"), PLOTS)) if kind != "text"]
    assert form == [kind for kind in kinds(verdict_markdown(verdict(), PLOTS)) if kind != "text"]


def test_a_verdict_of_nothing_but_its_figures_is_a_page() -> None:
    bare = verdict(levels=[], categories=[], causes=[], divergences=[], provenance=None, advice=[], coverage=None)
    page = verdict_markdown(msgspec.structs.replace(bare, position_acceptance=[]))
    assert page.startswith("# Verdict: promote\n\n**Promote**")
