"""What a path means on the host."""

from pathlib import Path

import pytest

from remote.errors import UsageError
from remote.paths import resolve_path


def test_a_relative_path_lies_below_the_root_and_a_tilde_is_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/her")
    root = Path("/data/roost")
    assert resolve_path(root, "runs/a") == Path("/data/roost/runs/a")
    assert resolve_path(root, "/elsewhere/a") == Path("/elsewhere/a")
    assert resolve_path(root, "~/a") == Path("/home/her/a")


@pytest.mark.parametrize("path", ["~no-such-user/prompts.jsonl", "a\0b"])
def test_what_is_no_path_is_refused_in_words(path: str) -> None:
    with pytest.raises(UsageError, match=r"no such user|NUL"):
        resolve_path(Path("/data"), path)
