"""What a host sends can be read and never obeyed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.state.sanitize import sanitize

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]")
hostile = st.lists(
    st.text()
    | st.sampled_from(["\x1b[31m", "\x1b]0;owned\x07", "\x1b]52;c;cm0=\x1b\\", "\x9b2J", "\x1b[?1049h", "\u202e", "\r"])
).map("".join)


@given(hostile)
def test_nothing_that_a_terminal_obeys_is_left(text) -> None:
    assert not _OBEYED.search(sanitize(text))


@given(hostile)
def test_cleaning_twice_changes_nothing(text) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_ordinary_text_stays_as_it_is(text) -> None:
    assert sanitize(text) == text


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("\x1b[1;31mloss\x1b[0m 2.5", "loss 2.5"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP+q544e\x1b\\after", "after"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ("\x9b31mred", "red"),
        ("abc\u202edef", "abcdef"),
        ("tab\tstays", "tab\tstays"),
        ("cut off in the middle \x1b[3", "cut off in the middle "),
    ],
)
def test_examples(sent, kept) -> None:
    assert sanitize(sent) == kept
