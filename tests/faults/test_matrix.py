"""docs/FAULTS.md names tests that exist."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (REPOSITORY / "docs/FAULTS.md").read_text())))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_each_named_test_exists(path: str, name: str) -> None:
    assert f"def {name}(" in (REPOSITORY / path).read_text()
