"""Bringing `remote/` to a host: content-addressed, over standard input, without SFTP or anything else installed there."""

import base64
import gzip
import hashlib
import importlib.util
import io
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from console.config.hosts import HostConfig

BOOT_MARKER = b"@@ROOST-BOOT"
"""Begins each line that the bootstrap says; everything else before the link is a banner or a noisy shell."""

HOST_MODULES = ["msgspec", "psutil", "numpy", "pynvml", "prometheus_client"]
"""What an interpreter must be able to import to run the host side."""

_SKIPPED_DIRECTORIES = {"__pycache__"}


class Release(NamedTuple):
    """The `remote` package of this installation as a gzipped tar, and its hash."""

    sha256: str
    payload: bytes


@cache
def release() -> Release:
    """Pack `remote/` so that equal files give equal bytes, whoever packs them and when."""
    specification = importlib.util.find_spec("remote")
    assert specification is not None, "remote ships with console"
    package = Path(next(iter(specification.submodule_search_locations or [])))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and not _SKIPPED_DIRECTORIES.intersection(path.parts):
                archive.addfile(_entry(path, package), io.BytesIO(path.read_bytes()))
    payload = gzip.compress(raw.getvalue(), mtime=0)
    return Release(hashlib.sha256(payload).hexdigest(), payload)


def _entry(path: Path, package: Path) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(str(Path("remote") / path.relative_to(package)))
    entry.size = path.stat().st_size
    entry.mode = 0o644
    return entry


def upload(packed: Release) -> bytes:
    """What the bootstrap reads when it lacks the release: 16 digits of size, then the payload."""
    return b"%016d" % len(packed.payload) + packed.payload


def bootstrap_command(
    host: HostConfig, packed: Release, verb: str = "link", path: str | None = None, actor: str = "unknown"
) -> str:
    """What becomes `python -m remote VERB [PATH]` on the host: a command line without anything that a shell could take for its own (bash, dash, fish alike)."""
    parameters = {
        "root": host.root,
        "sha256": packed.sha256,
        "python": host.python,
        "modules": HOST_MODULES,
        "marker": BOOT_MARKER.decode(),
        "verb": verb,
        "rest": [f"--actor={actor}", *([] if path is None else ["--", path])],
    }
    return program_command(Path(__file__).with_name("bootstrap.py"), parameters, starting_python(host))


def starting_python(host: HostConfig) -> str:
    """The interpreter that programs which need nothing are started with."""
    return host.python if host.python and _is_plain(host.python) else "python3"


def program_command(source: Path, parameters: dict[str, object], python: str) -> str:
    """The command line that runs `main(parameters)` of a source file on the host, for any shell."""
    text = source.read_text(encoding="utf-8")
    program = f"{text}\nmain({json.loads(json.dumps(parameters))!r})\n"
    encoded = base64.b64encode(gzip.compress(program.encode(), mtime=0)).decode()
    return f"exec {python} -I -u -c 'import base64,gzip;exec(gzip.decompress(base64.b64decode(\"{encoded}\")))'"


def _is_plain(path: str) -> bool:
    return all(character.isalnum() or character in "/._-+" for character in path)
