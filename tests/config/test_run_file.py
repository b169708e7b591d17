"""Single keys of a run file are changed, and nothing else of it."""

import os
import tempfile
from pathlib import Path

import pytest
import tomllib
from hypothesis import given
from hypothesis import strategies as st

from console.config.run_file import obstacle_to_writing, write_settings
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


def test_line_ends_of_windows_stay(file: Path) -> None:
    file.write_bytes(FILE.replace("\n", "\r\n").encode())
    write_settings(file, {"engine.flags.max-total-tokens": 8192, "speculation.num_steps": 3})
    told = file.read_bytes()
    assert told.startswith(FILE.replace("16384", "8192").replace("\n", "\r\n").encode())
    assert told.count(b"\n") == told.count(b"\r\n") > FILE.count("\n")


def test_a_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.toml"
    link.parent.mkdir()
    link.symlink_to("../run.toml")
    write_settings(link, {"engine.flags.max-total-tokens": 8192})
    assert link.is_symlink()
    assert file.read_text() == FILE.replace("16384", "8192")
    assert list(link.parent.iterdir()) == [link]


@pytest.mark.parametrize(
    "text",
    [
        'engine = { device = "cpu" }  # small\n',
        'engine = { device = "cpu", flags = { y = 1 } }\n',
        'engine.device = "cpu"\nengine.flags.y = 1\n',
        '[engine]\ndevice = "cpu"\nflags.y = 1\n[evaluation]\nprompts = 1\n',
        '[engine.environment]\nA = "1"\n[evaluation]\nprompts = 1\n[engine]\ndevice = "cpu"\n',
    ],
)
def test_every_way_to_write_a_section_takes_a_key_below_it(file: Path, text: str) -> None:
    file.write_text(text)
    before = tomllib.loads(text)
    write_settings(file, {"engine.flags.x": 2})
    found = tomllib.loads(file.read_text())
    assert found["engine"]["flags"].pop("x") == 2
    before["engine"].setdefault("flags", {})
    assert found == before


def test_a_directory_that_cannot_be_written_to_is_told_before_and_after(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory, user = Path(name), os.geteuid()
        file = directory / "run.toml"
        file.write_text(FILE)
        assert obstacle_to_writing(file) is None
        directory.chmod(0o555)
        try:
            if user == 0:  # who may write anywhere
                os.seteuid(65534)
            assert "its directory must be one that you can write to" in (obstacle_to_writing(file) or "")
            with pytest.raises(UsageError, match="cannot be changed: Permission denied"):
                write_settings(file, {"evaluation.prompts": 3})
        finally:
            os.seteuid(user)
            directory.chmod(0o755)
        assert file.read_text() == FILE
        assert os.listdir(directory) == ["run.toml"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left"):
        write_settings(file, {"a.b": 1})
    assert list(file.parent.iterdir()) == [file]


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
