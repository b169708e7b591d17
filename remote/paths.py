"""What a path means on the host."""

from pathlib import Path

from remote.errors import UsageError


def resolve_path(root: Path, path: str) -> Path:
    """A path of a run file or of a request: relative ones mean below ROOT, `~` is a home. Raises UsageError for what is none."""
    if "\0" in path:
        raise UsageError(f"{path!r} is no path: it has a NUL character")
    try:
        return root / Path(path).expanduser()
    except RuntimeError as error:  # nobody has that home
        raise UsageError(
            f"{path!r} cannot be found: this host has no such user", hint="write the whole path"
        ) from error
