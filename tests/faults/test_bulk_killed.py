"""Transfers whose ends are killed, interrupted or run out of disk."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console.config.hosts import HostConfig
from console.errors import HostError
from console.link.bulk import Transfer
from remote.artifacts.manifest import verify
from remote.bulk.wire import Kind, Wire, pack_places
from remote.jobs import process
from remote.protocol.bulk import BulkAdvanced
from tests.artifacts.trees import content, make_artifact
from tests.faults.small_disks import SmallDisk
from tests.faults.test_bulk import move
from tests.jobs.workshop import RELEASE
from tests.link.command import name_in_configuration
from tests.link.servers import OpenSSH

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(RELEASE)}


def start_end(verb: str, path: Path, source: int, sink: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "remote.bulk", verb, "/", str(path)],
        stdin=source,
        stdout=sink,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )


def start_both(source: Path, destination: Path) -> tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"]:
    """A sender and a receiver that speak through two pipes."""
    (sender_in, receiver_out), (receiver_in, sender_out) = os.pipe(), os.pipe()
    ends = (
        start_end("send", source, sender_in, sender_out),
        start_end("receive", destination, receiver_in, receiver_out),
    )
    for descriptor in (sender_in, sender_out, receiver_in, receiver_out):
        os.close(descriptor)
    return ends


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 7))])
def test_speculators_739_ends_that_are_killed_again_and_again_end_equal(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = {f"deep/{n % 3}/shard-{n}": os.urandom(chance.randrange(8_000_000)) for n in range(12)}
    source, destination = make_artifact(tmp_path / "source", files), tmp_path / "copies/copy"
    kills = 0
    for turn in range(5):
        sender, receiver = start_both(source, destination)
        assert receiver.stderr
        receiver.stderr.readline()
        time.sleep(chance.random() / 30)
        victim, other = (receiver, sender) if turn % 2 else (sender, receiver)
        victim.send_signal(signal.SIGKILL)
        victim.communicate(timeout=30)
        other.communicate(timeout=30)
        kills += victim.returncode == -signal.SIGKILL
        if destination.exists():
            verify(destination)
    assert kills > 0
    for end in start_both(source, destination):
        end.communicate(timeout=60)
        assert end.returncode == 0
    assert content(destination) == content(source)
    assert os.listdir(destination.parent) == ["copy"]


async def test_a_sender_that_is_killed_on_the_host_is_started_again(embedded: HostConfig, tmp_path: Path) -> None:
    big = make_artifact(tmp_path / "big", {f"shard-{n}": os.urandom(9_000_000) for n in range(4)})
    killed: list[int] = []

    def kill_sender(advanced: BulkAdvanced) -> None:
        if not killed and advanced.bytes_done < advanced.bytes_total:
            killed.extend(pid for pid in processes_of("send", big))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    retries: list[str] = []
    await move(embedded, Transfer("pull", tmp_path / "copy", str(big)), retries, on_advance=kill_sender)
    assert killed
    assert content(tmp_path / "copy") == content(big)


def processes_of(verb: str, path: Path) -> list[int]:
    found = []
    for one in process.every_process():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{one.pid}/cmdline").read_bytes().split(b"\0")
            if verb.encode() in command and os.fsencode(path) in command:
                found.append(one.pid)
    return found


async def test_a_pull_onto_a_full_disk_says_what_is_missing_and_goes_on(
    embedded: HostConfig, tmp_path: Path, small_disk: SmallDisk
) -> None:
    big = make_artifact(tmp_path / "big", {f"shard-{n}": os.urandom(1_000_000) for n in range(6)})
    copies = small_disk.path / "copies"
    copies.mkdir()
    small_disk.fill(leave=2_000_000)
    with pytest.raises(HostError, match=r"no room for .* are missing"):
        await move(embedded, Transfer("pull", copies / "copy", str(big)))
    assert not (copies / "copy").exists()
    small_disk.make_room()
    await move(embedded, Transfer("pull", copies / "copy", str(big)))
    assert content(copies / "copy") == content(big)
    assert os.listdir(copies) == ["copy"]


def test_an_interrupted_pull_leaves_no_process_and_shows_nothing(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    name_in_configuration(openssh.config(tmp_path / "root"))
    big = make_artifact(tmp_path / "big", {f"shard-{n}": os.urandom(16_000_000) for n in range(6)})
    command = [sys.executable, "-m", "console.cli", "pull", str(big), str(tmp_path / "copy"), "--host", "lab"]
    pulling = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not any(path.stat().st_size for path in tmp_path.glob("copy.*.part/tree/*")):
        assert time.monotonic() < deadline, "nothing ever arrived"
        time.sleep(0.005)
    for pid in processes_of("send", big):
        os.kill(pid, signal.SIGSTOP)
    pulling.send_signal(signal.SIGINT)
    _, words = pulling.communicate(timeout=30)
    for pid in processes_of("send", big):
        os.kill(pid, signal.SIGCONT)
    assert pulling.returncode == 130, words
    assert not (tmp_path / "copy").exists()
    while processes_of("send", big) or processes_of("receive", tmp_path / "copy"):
        assert time.monotonic() < deadline, "an end outlived the console"
        time.sleep(0.02)


@pytest.mark.parametrize("place", [(1, 0), (0, 4)])
def test_a_receiver_that_wants_what_is_not_there_is_refused(tmp_path: Path, place: tuple[int, int]) -> None:
    source = make_artifact(tmp_path / "source", {"a": b"abc"})
    sender = start_end("send", source, subprocess.PIPE, subprocess.PIPE)
    assert sender.stdin
    assert sender.stdout
    wire = Wire(sender.stdout.fileno(), sender.stdin.fileno())
    wire.send(Kind.GO)
    wire.receive_all(Kind.MANIFEST, 10_000)
    wire.send_all(Kind.WANT, pack_places([place]))
    _, stderr = sender.communicate(timeout=30)
    assert b"wants what the manifest does not list" in stderr
