"""Themes: enough of them for every eye and terminal, a person's own, and changes that show at once."""

from importlib.resources import files

import pytest

from console.ui.themes import load_themes, parse_theme
from console.ui.widgets.palette import Palette

THEMES = {theme.name: theme for theme in load_themes().themes}
PAIRS = (("foreground", 7.0), ("success", 4.5), ("warning", 4.5), ("error", 4.5), ("primary", 4.5), ("quiet", 3.4))


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_there_is_one_for_every_eye_and_terminal() -> None:
    assert {"roost-dark", "roost-light", "high-contrast", "blue-orange-dark", "blue-orange-light", "terminal"} <= set(
        THEMES
    )
    assert sum(not theme.dark for theme in THEMES.values()) >= 2
    assert THEMES["terminal"].ansi
    assert not load_themes().problems


@pytest.mark.parametrize("name", sorted(name for name, theme in THEMES.items() if not theme.ansi))
def test_what_is_written_can_be_read_on_its_background(name) -> None:
    theme = THEMES[name]
    for role, least in PAIRS:
        color = theme.variables[role] if role in theme.variables else getattr(theme, role)
        assert contrast(color, theme.background) >= (7.0 if name == "high-contrast" else least), role


@pytest.mark.parametrize("name", ["blue-orange-dark", "blue-orange-light"])
def test_what_is_well_and_what_is_broken_differ_without_red_and_green(name) -> None:
    theme = THEMES[name]
    blues = [int(color[5:7], 16) for color in (theme.success, theme.error)]
    assert blues[0] - blues[1] > 100


@pytest.mark.parametrize("name", sorted(THEMES))
async def test_every_theme_draws_the_screen(eight_gpus, show, name) -> None:
    async with show(eight_gpus, until=295.0, size=(80, 24), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "✗ GPU 6")
        screen.app.theme = name
        for key in ("5", "6", "1", "question_mark"):
            await screen.pilot.press(key)
            await screen.until(lambda: screen.app.screen.is_mounted)
        await screen.until_shown("Help")


async def test_another_theme_reaches_what_is_drawn_by_hand(eight_gpus, show) -> None:
    async with show(eight_gpus, until=295.0, size=(120, 35), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "▶ running")
        for name in ("roost-light", "high-contrast"):
            screen.app.theme = name
            await screen.until(lambda name=name: _colors_in_row(screen, " server ") >= {THEMES[name].foreground})
        theme = THEMES["roost-light"]
        assert not _colors_in_row(screen, " server ") & {theme.foreground, theme.accent}


def _colors_in_row(screen, words: str) -> set[str]:
    """The colours of the first row of the jobs that has `words`."""
    rows = screen.app.screen._compositor.render_strips()
    row = next(row for row in reversed(rows) if words in "".join(piece.text for piece in row))
    return {
        piece.style.color.get_truecolor().hex
        for piece in row
        if piece.style is not None and piece.style.color is not None
    }


async def test_a_persons_own_theme_is_taken_over_at_once_and_a_broken_one_told(
    eight_gpus, show, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "roost/themes/roost-dark.toml"
    async with show(eight_gpus, until=295.0, size=(80, 24), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7")
        text = _file("roost-dark")
        own.parent.mkdir(parents=True)
        own.write_text(text.replace("#9ece6a", "#abcdef"))
        screen.app.reload_own_files()
        await screen.until(lambda: screen.app.palette.success.lower() == "#abcdef")
        own.write_text(text.replace('"#9ece6a"', '"greenish"'))
        screen.app.reload_own_files()
        await screen.until(lambda: any("'greenish'" in note.message for note in screen.app._notifications))
        own.unlink()
        screen.app.reload_own_files()
        await screen.until(lambda: screen.app.palette.success.lower() == "#9ece6a")


async def test_no_color_leaves_the_terminals_own(eight_gpus, show, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with show(eight_gpus, until=295.0, size=(80, 24), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "✗ GPU 6")
        assert screen.app.theme == "terminal"
        assert screen.app.native_ansi_color


def test_a_theme_says_what_it_lacks() -> None:
    text = _file("roost-dark")
    with pytest.raises(ValueError, match="quiet"):
        parse_theme(text.replace("quiet", "loud"))
    with pytest.raises(ValueError, match="shade"):
        parse_theme(f'shade = "#000000"\n{text}')
    assert Palette.from_variables({**_roles("terminal")}).quiet == "bright_black"


def _roles(name: str) -> dict[str, str]:
    theme = THEMES[name]
    roles = ("primary", "accent", "foreground", "success", "warning", "error")
    return {**{role: str(getattr(theme, role)) for role in roles}, **theme.variables}


def _file(name: str) -> str:
    return (files("themes") / f"{name}.toml").read_text(encoding="utf-8")
