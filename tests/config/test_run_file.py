"""Single keys of a run file are changed, and nothing else of it."""

from pathlib import Path

import pytest
import tomllib
from hypothesis import given
from hypothesis import strategies as st

from console.config.run_file import write_settings
from console.errors import UsageError

FILE = """# mine
preset = "embedded"  # the small one

[engine.flags]
# why
max-total-tokens = 16384

[evaluation]
prompts = 20
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    path.chmod(0o640)
    return path


def test_comments_order_and_mode_stay(file: Path) -> None:
    write_settings(file, {"engine.flags.max-total-tokens": 8192})
    assert file.read_text() == FILE.replace("16384", "8192")
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(file.parent.iterdir()) == [file]


def test_sections_that_are_not_there_are_made(file: Path) -> None:
    write_settings(file, {"speculation.num_steps": 3, "engine.environment.A": "1", "engine.flags.x": True})
    found = tomllib.loads(file.read_text())
    assert found["speculation"] == {"num_steps": 3}
    assert found["engine"] == {"environment": {"A": "1"}, "flags": {"max-total-tokens": 16384, "x": True}}
    assert found["evaluation"] == {"prompts": 20}
    assert "# why" in file.read_text()


def test_a_link_stays_a_link(file: Path) -> None:
    link = file.with_name("link.toml")
    link.symlink_to(file.name)
    write_settings(link, {"evaluation.prompts": 8})
    assert link.is_symlink()
    assert "prompts = 8" in file.read_text()


keys = st.lists(st.sampled_from(["engine", "flags", "a", "b-c", "d_e"]), min_size=2, max_size=4).map(".".join)


@given(
    keys,
    st.one_of(
        st.integers(-(2**31), 2**31), st.booleans(), st.text(max_size=12), st.lists(st.text(max_size=4), max_size=3)
    ),
)
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, key: str, value: object) -> None:
    file = tmp_path_factory.mktemp("file") / "run.toml"
    file.write_text(FILE)
    write_settings(file, {key: value})
    found = tomllib.loads(file.read_text())
    for section in key.split("."):
        found = found[section]
    assert found == value


@pytest.mark.parametrize(
    ("text", "key", "word"),
    [
        ("a = [", "b.c", "not a TOML file"),
        ("engine = 1", "engine.flags.x", "engine is no section"),
        ("\udcff", "a.b", "not a TOML file"),
    ],
)
def test_a_file_that_cannot_take_it_stays_as_it_is(tmp_path: Path, text: str, key: str, word: str) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=word):
        write_settings(file, {key: 1})
    assert file.read_bytes() == text.encode("utf-8", "surrogateescape")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml cannot be changed"):
        write_settings(tmp_path / "absent.toml", {"a.b": 1})
