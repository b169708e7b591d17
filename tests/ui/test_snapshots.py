"""The screen looks as it did: text and the style of every cell, at three sizes, in three themes, in five situations."""

import pytest

from tests.ui.snapshots import PLACE, SCENES, SIZES, path_of, snapshot

ADVICE = "the screen looks different: `make snapshots` writes it anew, `git diff tests/snapshots` shows what changed"


@pytest.fixture(autouse=True)
def _colors(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
async def test_the_screen_looks_as_it_did(scene, size) -> None:
    kept = path_of(scene, size).read_text(encoding="utf-8").splitlines()
    assert (await snapshot(scene, size)).splitlines() == kept, ADVICE


def test_no_snapshot_is_of_something_that_is_no_more() -> None:
    assert {path.name for path in PLACE.iterdir()} == {path_of(scene, size).name for scene in SCENES for size in SIZES}
