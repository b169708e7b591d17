"""What a host sends can be read and never obeyed."""

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.state.log_text import LogText
from console.state.sanitize import escape_controls, one_line, sanitize, sanitize_log, without_colors

COLOR = re.compile(r"\x1b\[[0-9;:]*m")
INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
SEQUENCES = [
    "\x1b[31m",
    "\x1b[38:2:1:2:3m",
    "\x1b[",
    "\x1b",
    "\x1b]",
    "3",
    ";",
    "m",
    "\x1b[2J",
    "\x1b[?1049h",
    "\x1b[6n",
    "\x1b]0;owned\x07",
    "\x1b]52;c;b3duZWQ=\x1b\\",
    "\x1b]8;;http://evil\x1b\\",
    "\x1bP+q544e\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1bc",
    "\x1b(0",
    "\x9b2J",
    "\x9d52;c;b3duZWQ=\x9c",
    "\u202e",
    "\u2066",
    "\u200b",
    "\ufeff",
    "\r",
    "\r\n",
    "\n",
    "\x07",
    "\x7f",
]
hostile = st.lists(st.text(max_size=5) | st.sampled_from(SEQUENCES)).map("".join)


def is_readable(text: str) -> bool:
    return all(character in "\n\t" or unicodedata.category(character) not in INVISIBLE for character in text)


@given(hostile)
def test_nothing_that_a_terminal_obeys_is_left(text) -> None:
    assert is_readable(sanitize(text))
    assert is_readable(COLOR.sub("", sanitize_log(text)))
    assert without_colors(sanitize_log(text)) == sanitize(text)
    assert "\n" not in one_line(text)


def test_every_character_without_a_shape_is_taken_out_and_no_other() -> None:
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        kept = len(sanitize(f"a{chr(code)}b")) == 3
        assert kept or category in (*INVISIBLE, "Cn"), hex(code)
        assert not kept or category not in INVISIBLE or chr(code) in "\n\r\t", hex(code)


@given(hostile)
def test_cleaning_twice_changes_nothing(text) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)
    assert sanitize_log(sanitize_log(text)) == sanitize_log(text)


@given(hostile, st.data())
def test_no_sequence_is_smuggled_through_at_the_border_of_two_chunks(text, data) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    chunks = [raw[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    apart = "".join(sanitize_log(chunk.decode(errors="replace")) for chunk in chunks)
    assert is_readable(COLOR.sub("", apart))
    log = LogText()
    together = "".join(log.feed(chunk) for chunk in chunks) + log.feed(b"", final=True)
    assert together == sanitize_log(raw.decode(errors="replace"))


@given(hostile)
def test_a_json_text_keeps_its_values_and_loses_what_a_terminal_obeys(text) -> None:
    text = text.encode(errors="replace").decode()
    document = escape_controls(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(document) == {text: [text]}
    assert is_readable(document)


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Cn"])))
def test_ordinary_text_stays_as_it_is(text) -> None:
    assert sanitize(text) == sanitize_log(text) == text


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("\x1b[1;31mloss\x1b[0m 2.5", "loss 2.5"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]0;never ended\nnext line", "\nnext line"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP+q544e\x1b\\after", "after"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ("\x9b31mred", "red"),
        ("abc\u202edef", "abcdef"),
        ("tab\tstays", "tab\tstays"),
        ("\x1b\u202e[2J", "[2J"),
        ("cut off in the middle \x1b[3", "cut off in the middle "),
    ],
)
def test_examples(sent, kept) -> None:
    assert sanitize(sent) == kept


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("\x1b[1;31mloss\x1b[m", "\x1b[1;31mloss\x1b[m"),
        ("\x1b[38:5:1mx", "\x1b[38:5:1mx"),
        ("\x1b[?31mx", "x"),
        ("\x1b[>4;2mx", "x"),
        ("\x1b[31 mx", "x"),
        ("\x1b[3\x1b[31m1m", "\x1b[31m1m"),
        ("\x9b31mx", "x"),
    ],
)
def test_of_all_sequences_a_log_keeps_colours_alone(sent, kept) -> None:
    assert sanitize_log(sent) == kept
