"""docs/RUN_FILE.md has every key of a run file with its default, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from remote.protocol.run import RunConfig

PAGE = Path(__file__).parents[2] / "docs/RUN_FILE.md"
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| .* \| .+ \|$")


def documented() -> dict[str, str]:
    """Keys with their sections, and what the page says of their defaults."""
    found: dict[str, str] = {}
    sections: list[str] = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            sections = re.findall(r"`\[([\w.]+)\]`", line) or [""]
        elif match := ROW.match(line):
            for section in sections:
                found[f"{section}.{match[1]}".lstrip(".")] = match[2].strip("`")
    return found


def existing(kind: type[msgspec.Struct] = RunConfig, section: str = "") -> Iterator[tuple[str, str]]:
    """Keys with their sections, and their defaults as TOML has them."""
    for field in msgspec.structs.fields(kind):
        found = msgspec.inspect.type_info(field.type)
        kinds = [one for one in getattr(found, "types", [found]) if isinstance(one, msgspec.inspect.StructType)]
        if kinds:
            yield from existing(kinds[0].cls, f"{section}{field.name}.")
        else:
            yield section + field.name, default_of(field)


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if isinstance(field.default, bool):
        return str(field.default).lower()
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return "–" if value is None else f'"{value}"' if isinstance(value, str) else str(value)


def test_the_page_has_every_key_with_its_default() -> None:
    assert documented() == dict(existing())
