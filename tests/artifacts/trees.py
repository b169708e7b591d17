"""Directory trees for the tests of copying."""

import os
from pathlib import Path

import msgspec

from remote.artifacts.manifest import Manifest, write_manifest


def content(root: Path) -> dict[str, "bytes | str | None"]:
    """Every entry below `root`: a file's bytes, a link's target, None for a directory."""
    found: dict[str, bytes | str | None] = {}
    for directory, below, names in os.walk(root):
        for name in (*below, *names):
            path = Path(directory, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = os.readlink(path)
            else:
                found[key] = None if path.is_dir() else path.read_bytes()
    return found


def make_tree(root: Path, files: dict[str, bytes]) -> Path:
    """Write `files` below `root`."""
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def make_artifact(root: Path, files: dict[str, bytes]) -> Path:
    """A finished artifact of these files."""
    make_tree(root, files)
    manifest = Manifest(
        format="test", version=1, fingerprint="f", inputs={}, producer="tests", created_at=1.0, files=[], properties={}
    )
    write_manifest(root, manifest, files)
    return root


def forge_manifest(root: Path, entries: list[dict[str, object]]) -> None:
    """A manifest that says what no honest writer would."""
    document = {
        "format": "test",
        "version": 1,
        "fingerprint": "f",
        "inputs": {},
        "producer": "tests",
        "created_at": 1.0,
        "files": entries,
        "properties": {},
    }
    (root / "manifest.json").write_bytes(msgspec.json.encode(document))
