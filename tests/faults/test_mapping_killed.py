"""kill -9 at every step of copying a mapping: its destination is the old or the new, and the same call brings it to its end."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from remote.artifacts import atomic, safe_copy
from remote.artifacts.manifest import read_manifest, verify
from remote.artifacts.mapping_copy import backups_of, copy_mapping
from remote.artifacts.mapping_validation import validate_mapping
from remote.protocol.mappings import INCOMING
from tests.artifacts.small_mappings import write_small
from tests.link.command import name_in_configuration, roost
from tests.link.servers import OpenSSH

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link"}


def nothing(done: int, total: int) -> None:
    """No progress is looked at."""


def copy(source: Path, destination: Path, *, replace: bool) -> None:
    copy_mapping(source, destination, replace=replace, on_progress=nothing)


class Kill:
    """A kill before the step of one number, of all by which a copy reaches the disk; of what is being written half is there."""

    def __init__(self, step: int) -> None:
        self._left = step

    def _is_due(self) -> bool:
        self._left -= 1
        return self._left < 0

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def audited(self, event: str, arguments: tuple[object, ...]) -> None:
        opens_to_write = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
        if (opens_to_write or event in NAMING) and self._is_due():
            self._die()

    def fsync(self, descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
        if self._is_due():
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            self._die()
        real(descriptor)

    def write_whole(self, writer: BinaryIO, block: bytes) -> None:
        writer.write(block[: len(block) // 2])
        if self._is_due():
            self._die()
        writer.write(block[len(block) // 2 :])

    def renameat2(self, *arguments: object, real: Callable[..., int] = atomic._libc.renameat2) -> int:
        if self._is_due():
            self._die()
        return real(*arguments)


def copy_until_killed(source: Path, destination: Path, replace: bool, step: int) -> None:
    kill = Kill(step)
    os.fsync = kill.fsync
    safe_copy.write_whole = kill.write_whole
    atomic._libc = kill
    sys.addaudithook(kill.audited)
    copy(source, destination, replace=replace)
    os._exit(0)


def state(directory: Path) -> dict[str, bytes]:
    """The files of a mapping; the manifest has the time in it."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "manifest.json"}


def is_old(destination: Path, old: dict[str, bytes] | None) -> bool:
    return state(destination) == old if destination.exists() else old is None


@pytest.mark.parametrize("there", ["nothing", "another mapping"])
def test_a_copy_is_old_or_new_after_a_kill_at_any_step_and_the_same_call_ends_it(there: str, tmp_path: Path) -> None:
    write_small(tmp_path / "source")
    wanted = state(tmp_path / "source")
    fork = multiprocessing.get_context("fork")
    seen = set()
    for step in range(1_000):
        place = tmp_path / f"killed-{step}"
        place.mkdir()
        destination = place / "mapping"
        if there == "another mapping":
            write_small(destination, vocab_size=70)
        old = None if there == "nothing" else state(destination)
        replace = old is not None
        child = fork.Process(target=copy_until_killed, args=(tmp_path / "source", destination, replace, step))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        was_old = is_old(destination, old)
        seen.add(was_old)
        if not was_old:
            verify(destination)
            assert state(destination) == wanted
        copy(tmp_path / "source", destination, replace=replace)
        assert validate_mapping(destination).valid
        verify(destination)
        assert state(destination) == wanted
        assert [state(backup) for backup in backups_of(destination)] == ([] if old is None else [old])
        assert {path.name for path in place.iterdir()} == {"mapping", *(one.name for one in backups_of(destination))}
    assert step > 30
    assert seen == {True, False}


def name_both(openssh: OpenSSH, one: Path, other: Path) -> None:
    """Two hosts, `lab` and `other`: one server with two roots."""
    openssh.remember()
    name_in_configuration(openssh.config(one))
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "roost/roost.toml"
    text = path.read_text()
    path.write_text(text + text.replace("hosts.lab", "hosts.other").replace(str(one), str(other)))


def test_a_mapping_that_roost_did_not_make_reaches_another_host_sealed(openssh: OpenSSH, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    name_both(openssh, one, other)
    write_small(one / "source")
    (one / "source/manifest.json").unlink()
    done = roost("vocabulary", "copy", "source", "mappings/theirs", "--host", "lab", "--to", "other")
    assert done.returncode == 0, done.stderr
    verify(other / "mappings/theirs")
    assert state(other / "mappings/theirs") == state(one / "source")
    assert read_manifest(other / "mappings/theirs").inputs["source"] == f"lab:{one / 'source'}"
    assert list((other / INCOMING).iterdir()) == []
    assert not (one / "source/manifest.json").exists()


@pytest.mark.slow
def test_a_copy_between_hosts_whose_console_is_killed_is_ended_by_the_same_call(
    openssh: OpenSSH, tmp_path: Path
) -> None:
    """Killed when the sender has begun to seal it, when the receiver is reached, when it has arrived, when its job has started."""
    one, other = tmp_path / "one", tmp_path / "other"
    name_both(openssh, one, other)
    write_small(one / "source")
    (one / "source/manifest.json").unlink()
    write_small(other / "mappings/theirs", vocab_size=70)
    destination, old = other / "mappings/theirs", state(other / "mappings/theirs")
    words = ["--replace", "--confirm", "mappings/theirs"]
    command = ["vocabulary", "copy", "source", "mappings/theirs", "--host", "lab", "--to", "other", *words]
    points: list[tuple[Path, str]] = [
        (one, "jobs/mapping-copy-*"),
        (other, INCOMING),
        (other, f"{INCOMING}/mapping-*[0-9a-f]"),
        (other, "jobs/mapping-copy-*"),
    ]
    for root, pattern in points:
        copying = subprocess.Popen(
            [sys.executable, "-m", "console.cli", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not list(root.glob(pattern)) and copying.poll() is None:
            time.sleep(0.001)
        copying.send_signal(signal.SIGKILL)
        assert copying.wait() in (-signal.SIGKILL, 0)
        if state(destination) != old:
            verify(destination)
    done = roost(*command)
    assert done.returncode == 0, done.stderr
    verify(destination)
    assert state(destination) == state(one / "source")
    assert [state(backup) for backup in backups_of(destination)] == [old]
    assert list((other / INCOMING).iterdir()) == []
    assert {path.name for path in destination.parent.iterdir()} == {"theirs", backups_of(destination)[0].name}
