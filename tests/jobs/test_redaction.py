"""No byte of a value leaves, however it is written and wherever a page is cut; nothing else changes."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.jobs import covered_log
from remote.jobs.logs import LogBytes
from remote.redaction import SECRET_NAME, Redactor, is_secret_value

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
AWKWARD = 'k"e\\y/+%=&?#"end'

values = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=20)
small = st.text('ab"\\', min_size=8, max_size=10)
"""Values that overlap themselves and each other."""


@pytest.mark.parametrize("value", [TOKEN, AWKWARD])
@pytest.mark.parametrize(
    "write",
    [str, repr, json.dumps, lambda v: json.dumps(json.dumps(v)), quote, lambda v: quote(v, safe=""), str.encode],
)
def test_a_value_is_covered_in_every_form_that_programs_write(value, write) -> None:
    written = write(value)
    text = written.decode() if isinstance(written, bytes) else written
    covered = Redactor([value]).redact_text(f"before {text} after")
    assert value.strip('"') not in covered
    assert covered.startswith("before ")
    assert covered.endswith(" after")
    assert "*" * 8 in covered
    assert len(covered) == len(f"before {text} after")


@given(st.lists(small | values, min_size=1, max_size=3), st.lists(st.text(max_size=6) | st.integers(0, 2), max_size=8))
def test_only_values_change_and_the_length_stays(secrets, pieces) -> None:
    text = "".join(piece if isinstance(piece, str) else secrets[piece % len(secrets)] for piece in pieces)
    covered = Redactor(secrets).redact_text(text)
    assert len(covered) == len(text)
    assert all(now in (before, "*") for now, before in zip(covered, text, strict=True))
    assert all(secret not in covered for secret in secrets if set(secret) != {"*"})


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8) | st.just(TOKEN + '\n"' + AWKWARD), st.lists, max_leaves=8
    )
)
def test_a_json_line_stays_json(value) -> None:
    line = json.dumps({"type": "x", "value": value}).encode() + b"\n"
    covered = Redactor([TOKEN, AWKWARD]).redact_json(line)
    assert covered.endswith(b"\n")
    assert set(json.loads(covered)) == {"type", "value"}
    assert TOKEN.encode() not in covered
    assert json.dumps(AWKWARD)[1:-1].encode() not in covered


@given(
    st.lists(small | values, min_size=1, max_size=2),
    st.lists(st.binary(max_size=8) | st.integers(0, 1), max_size=8),
    st.data(),
)
def test_no_byte_of_a_value_leaves_a_log_that_is_followed_while_it_is_written(secrets, pieces, data) -> None:
    """The file grows by arbitrary steps, is read by arbitrary pages, and the reader goes on where it stopped."""
    content = b"".join(
        piece if isinstance(piece, bytes) else secrets[piece % len(secrets)].encode() for piece in pieces
    )
    redactor = Redactor(secrets)
    seen, size = b"", 0
    while len(seen) < len(content):
        size = data.draw(st.integers(size, len(content)), "size of the file")
        over = size == len(content)
        page = read_page(content[:size], len(seen), data.draw(st.integers(1, 12), "limit"), redactor, may_grow=not over)
        seen += page
        assert page or not over
    assert len(seen) == len(content)
    expected = redactor.redact(content)
    waiting = redactor.unfinished(content)
    kept = len(content) - waiting
    assert seen[:kept] == expected[:kept]
    assert all(now in (before, ord("*")) for now, before in zip(seen[kept:], content[kept:], strict=True))


def read_page(content: bytes, at: int, limit: int, redactor: Redactor, *, may_grow: bool) -> bytes:
    before = min(redactor.margin, at)
    window = content[at - before : at + limit + redactor.margin]
    return redactor.page(window, before, before + limit, may_grow=may_grow)


def test_every_page_of_a_file_is_the_covered_file(tmp_path) -> None:
    content = b"one\n" + TOKEN.encode() + b"\nmiddle " + TOKEN.encode() * 2 + b" end\n"
    log = tmp_path / "out.log"
    log.write_bytes(content)
    redactor = Redactor([TOKEN])
    expected = redactor.redact(content)
    for limit in (1, 2, 7, 35, 36, 1000):
        for at in range(len(content) + 1):
            page = covered_log.read_log(log, at, limit, redactor, may_grow=False)
            assert page == LogBytes(at, expected[at : at + limit], 0, len(content))
    tail = covered_log.read_log(log, None, 20, redactor, may_grow=True)
    assert tail == LogBytes(len(content) - 20, expected[-20:], 0, len(content))


def test_the_beginning_of_a_value_waits_for_its_rest(tmp_path) -> None:
    log = tmp_path / "out.log"
    log.write_bytes(b"token: " + TOKEN[:10].encode())
    redactor = Redactor([TOKEN])
    assert covered_log.read_log(log, 0, 100, redactor, may_grow=True).data == b"token: "
    assert covered_log.read_log(log, 7, 100, redactor, may_grow=True).data == b""
    log.write_bytes(b"token: " + TOKEN[:10].encode() + b" is no token")
    assert covered_log.read_log(log, 7, 100, redactor, may_grow=True).data == TOKEN[:10].encode() + b" is no token"
    log.write_bytes(b"token: " + TOKEN.encode())
    assert covered_log.read_log(log, 7, 100, redactor, may_grow=True).data == b"*" * len(TOKEN)


def test_what_is_cut_off_at_the_end_of_a_job_is_covered_too(tmp_path) -> None:
    log = tmp_path / "out.log"
    log.write_bytes(b"token: " + TOKEN[:-1].encode())
    assert covered_log.read_log(log, 0, 100, Redactor([TOKEN]), may_grow=False).data == b"token: " + b"*" * (
        len(TOKEN) - 1
    )


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "A_KEY", "X9_SECRET"])
def test_names_of_tokens(name) -> None:
    assert SECRET_NAME.match(name)


@pytest.mark.parametrize(
    "name", ["PATH", "TOKEN", "hf_TOKEN", "HF_TOKEN\n", "_TOKEN", "HF-TOKEN", "HF_TOKENS", "9_KEY", "LD_PRELOAD"]
)
def test_other_names_are_refused(name) -> None:
    assert not SECRET_NAME.match(name)


@pytest.mark.parametrize(
    "value", ["", "short", "two words here", "line\nbreak", "käse-käse", "nul\0nulnul", "x" * 4097]
)
def test_what_is_no_token_is_refused(value) -> None:
    assert not is_secret_value(value)


def test_values_that_overlap_are_covered_to_the_last_byte() -> None:
    assert Redactor(["abababab"]).redact(b"<abababababab>") == b"<************>"
    assert Redactor(["token-one", "one-token"]).redact(b"<token-one-token>") == b"<***************>"
