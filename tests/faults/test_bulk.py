"""Artifacts over a bad line: cut connections, hostile ends, full disks; what arrives is what left, or nothing has the name."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError, HostError
from console.link.bulk import Patience, Transfer, transfer
from console.link.client import HostLink
from remote.artifacts.landing import land
from remote.artifacts.manifest import hash_file
from remote.bulk.wire import Kind, Wire
from remote.protocol.bulk import BulkAdvanced, BulkDone
from remote.protocol.errors import ErrorCode
from remote.protocol.requests import Ping
from tests.artifacts.trees import content, forge_manifest, make_artifact
from tests.jobs.workshop import RELEASE
from tests.link.command import name_in_configuration, roost
from tests.link.servers import OpenSSH, Proxy

SOON = Patience(attempts=8, first_wait_s=0.05, most_wait_s=0.5)
FILES = {"shard-0": os.urandom(3_000_000), "deep/er/shard-1": os.urandom(2_000_000), "empty": b"", "config.json": b"{}"}


async def move(host: HostConfig, what: Transfer, retries: list[str] | None = None, **more: object) -> BulkDone:
    def retried(reason: str, wait_s: float) -> None:
        if retries is not None:
            retries.append(reason)

    more.setdefault("on_advance", lambda advanced: None)
    return await transfer(host, what, on_retry=retried, patience=SOON, **more)


@pytest.fixture
def artifact(embedded: HostConfig) -> Path:
    """A finished artifact on the host."""
    return make_artifact(Path(embedded.root) / "runs/one/drafter", FILES)


async def test_an_artifact_is_pulled_whole_and_again_for_nothing(
    embedded: HostConfig, artifact: Path, tmp_path: Path
) -> None:
    pulled = tmp_path / "here/drafter"
    done = await move(embedded, Transfer("pull", pulled, "runs/one/drafter"))
    assert content(pulled) == content(artifact)
    assert (done.bytes_moved, done.files) == (5_000_002, 4)
    assert done.manifest_sha256 == hash_file(artifact / "manifest.json")
    assert os.listdir(pulled.parent) == ["drafter"]
    again = await move(embedded, Transfer("pull", pulled, str(artifact)))
    assert again.bytes_moved == 0


async def test_an_artifact_is_pushed_and_pulled_back_the_same(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    host = openssh.config(tmp_path / "root")
    local = make_artifact(tmp_path / "local", FILES)
    done = await move(host, Transfer("push", local, "imported/mapping"))
    assert done.path == str(tmp_path / "root/imported/mapping")
    await move(host, Transfer("pull", tmp_path / "back", "imported/mapping"))
    assert content(tmp_path / "back") == content(local) == content(tmp_path / "root/imported/mapping")
    assert (await move(host, Transfer("push", local, "imported/mapping"))).bytes_moved == 0


async def test_the_link_answers_while_a_transfer_runs(embedded: HostConfig, artifact: Path, tmp_path: Path) -> None:
    answered = asyncio.Event()
    async with HostLink(embedded, actor="ann") as link:
        pulling = asyncio.create_task(
            move(embedded, Transfer("pull", tmp_path / "drafter", str(artifact)), on_advance=lambda _: answered.set())
        )
        await answered.wait()
        await link.call(Ping(), timeout_s=20)
        await pulling


@pytest.mark.parametrize("direction", ["pull", "push"])
async def test_a_transfer_that_is_cut_goes_on_by_itself_byte_for_byte(
    embedded: HostConfig, proxy: Proxy, artifact: Path, tmp_path: Path, direction: str
) -> None:
    behind = msgspec.structs.replace(embedded, port=proxy.port)
    big = make_artifact(tmp_path / "big", {f"shard-{n}": os.urandom(9_000_000) for n in range(4)})
    cuts: list[int] = []

    def cut_early(advanced: BulkAdvanced) -> None:
        if len(cuts) < 3 and advanced.bytes_done < advanced.bytes_total:
            cuts.append(advanced.bytes_done)
            proxy.cut()

    retries: list[str] = []
    source, there = (tmp_path / "copy", str(big)) if direction == "pull" else (big, str(tmp_path / "copy"))
    done = await move(behind, Transfer(direction, source, there), retries, on_advance=cut_early)
    assert content(tmp_path / "copy") == content(big)
    assert len(retries) >= 1
    assert done.bytes_total == 36_000_000
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy"]


async def test_a_later_pull_goes_on_where_a_cut_one_stopped(embedded: HostConfig, proxy: Proxy, tmp_path: Path) -> None:
    behind = msgspec.structs.replace(embedded, port=proxy.port)
    big = make_artifact(tmp_path / "big", {f"shard-{n}": os.urandom(9_000_000) for n in range(4)})

    def unplug(advanced: BulkAdvanced) -> None:
        proxy.accepting = False
        proxy.cut()

    with pytest.raises(ConnectionFailed):
        await move(behind, Transfer("pull", tmp_path / "copy", str(big)), on_advance=unplug)
    assert not (tmp_path / "copy").exists()
    done = await move(embedded, Transfer("pull", tmp_path / "copy", str(big)))
    assert 0 < done.bytes_moved < done.bytes_total
    assert content(tmp_path / "copy") == content(big)


@pytest.mark.parametrize("direction", ["pull", "push"])
async def test_a_different_destination_is_left_alone(
    embedded: HostConfig, artifact: Path, tmp_path: Path, direction: str
) -> None:
    taken = make_artifact(tmp_path / "taken", {"mine": b"1"})
    before = content(tmp_path)
    ends = (taken, str(artifact)) if direction == "pull" else (artifact, str(taken))
    with pytest.raises(HostError, match="exists and is not what is sent") as refused:
        await move(embedded, Transfer(direction, *ends))
    assert refused.value.info.code == ErrorCode.CONFLICT
    assert {k: v for k, v in content(tmp_path).items() if k.startswith("taken")} == {
        k: v for k, v in before.items() if k.startswith("taken")
    }


async def test_two_pulls_to_one_place_end_in_one_and_a_word(
    embedded: HostConfig, artifact: Path, tmp_path: Path
) -> None:
    identity = hash_file(artifact / "manifest.json")
    with land(tmp_path / "copy", identity), pytest.raises(HostError, match="another copy is bringing the same"):
        await move(embedded, Transfer("pull", tmp_path / "copy", str(artifact)))
    both = [move(embedded, Transfer("pull", tmp_path / "copy", str(artifact))) for _ in range(2)]
    results = await asyncio.gather(*both, return_exceptions=True)
    assert any(isinstance(result, BulkDone) for result in results)
    assert all(isinstance(result, BulkDone | HostError) for result in results)
    assert content(tmp_path / "copy") == content(artifact)
    assert list(tmp_path.glob("*.part")) == []


async def test_speculators_739_what_is_unfinished_is_not_pulled(embedded: HostConfig, tmp_path: Path) -> None:
    checkpoint = Path(embedded.root) / "runs/one/checkpoint"
    make_artifact(checkpoint, FILES)
    (checkpoint / "manifest.json").unlink()
    with pytest.raises(HostError, match="it is unfinished") as refused:
        await move(embedded, Transfer("pull", tmp_path / "copy", str(checkpoint)))
    assert refused.value.info.code == ErrorCode.PRECONDITION
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("damage", ["truncated", "zero tail"])
async def test_lightning_688_a_truncated_file_is_never_taken_for_whole(
    embedded: HostConfig, artifact: Path, tmp_path: Path, damage: str
) -> None:
    shard = artifact / "shard-0"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1000] if damage == "truncated" else data[:-1000] + bytes(1000))
    words = "has 2999000 bytes instead of 3000000" if damage == "truncated" else "other content than its manifest says"
    with pytest.raises(HostError, match=words):
        await move(embedded, Transfer("pull", tmp_path / "copy", str(artifact)))
    assert not (tmp_path / "copy").exists()
    shard.write_bytes(data)
    await move(embedded, Transfer("pull", tmp_path / "copy", str(artifact)))
    assert content(tmp_path / "copy") == content(artifact)


async def test_a_link_that_leads_out_is_not_sent(embedded: HostConfig, artifact: Path, tmp_path: Path) -> None:
    (artifact / "config.json").unlink()
    (tmp_path / "private").write_bytes(b"{}")
    (artifact / "config.json").symlink_to(tmp_path / "private")
    with pytest.raises(HostError, match="leads out of it"):
        await move(embedded, Transfer("pull", tmp_path / "copy", str(artifact)))


@pytest.mark.parametrize("there", ["jobs/x", "../elsewhere", "a/../../b", "", "."])
async def test_places_on_the_host_that_nobody_writes_to(
    embedded: HostConfig, artifact: Path, tmp_path: Path, there: str
) -> None:
    with pytest.raises(HostError) as refused:
        await move(embedded, Transfer("push", artifact, there))
    assert refused.value.info.code == ErrorCode.USAGE


class Hostile:
    """A sender that says what no honest one would, against a real receiver."""

    def __init__(self, destination: Path) -> None:
        command = [sys.executable, "-m", "remote.bulk", "receive", "/", str(destination)]
        self.receiver = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(RELEASE)},
        )
        assert self.receiver.stdin
        assert self.receiver.stdout
        self.wire = Wire(self.receiver.stdout.fileno(), self.receiver.stdin.fileno())
        self.wire.expect(Kind.GO)

    def offer(self, directory: Path, entries: list[dict[str, object]]) -> None:
        directory.mkdir(exist_ok=True)
        forge_manifest(directory, entries)
        self.wire.send_all(Kind.MANIFEST, (directory / "manifest.json").read_bytes())

    def error(self) -> dict[str, str]:
        _, stderr = self.receiver.communicate(timeout=30)
        assert self.receiver.returncode == 1
        return json.loads(stderr.splitlines()[-1])


def entry(name: str, data: bytes = b"abc", **changes: object) -> dict[str, object]:
    return {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **changes}


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../up")],
        [entry("/etc/cron.d/mine")],
        [entry("a/../../up")],
        [entry("a//b")],
        [entry("")],
        [entry("nul\0")],
        [entry("back\\slash")],
        [entry("manifest.json")],
        [entry("a"), entry("a")],
        [entry("a"), entry("a/b")],
        [entry("a", bytes=-1)],
        [entry("a", bytes=1 << 60)],
        [entry("a", sha256="../../x")],
    ],
)
def test_a_manifest_that_lies_is_refused_before_anything_is_written(tmp_path: Path, entries) -> None:
    sender = Hostile(tmp_path / "place/copy")
    sender.offer(tmp_path / "forged", entries)
    assert "not to be trusted" in sender.error()["message"]
    assert os.listdir(tmp_path) == ["forged"]


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([(0, 0, b"abcd")], "longer than announced"),
        ([(0, 0, b"abx")], "other content"),
        ([(0, 1, b"bc")], "were due"),
        ([(1, 0, b"abc")], "were due"),
        ([(0, 0, b"a"), (0, 0, b"a")], "were due"),
        ([], "where DATA was due"),
    ],
)
def test_bytes_that_lie_are_refused(tmp_path: Path, frames: list[tuple[int, int, bytes]], words: str) -> None:
    sender = Hostile(tmp_path / "copy")
    sender.offer(tmp_path / "forged", [entry("a")])
    sender.wire.receive_all(Kind.WANT, 100)
    for frame in frames:
        sender.wire.send_data(*frame)
    sender.wire.send(Kind.END)
    assert words in sender.error()["message"]
    assert not (tmp_path / "copy").exists()


def test_a_frame_without_end_is_refused(tmp_path: Path) -> None:
    sender = Hostile(tmp_path / "copy")
    sender.wire._write(b"M\xff\xff\xff\xff")
    assert "are the most" in sender.error()["message"]


def test_the_verbs_as_a_person_uses_them(embedded: HostConfig, artifact: Path, tmp_path: Path) -> None:
    name_in_configuration(embedded)
    pulled = roost("pull", "runs/one/drafter", str(tmp_path / "drafter"), "-H", "lab")
    assert pulled.returncode == 0, pulled.stderr
    assert f"{tmp_path}/drafter: 4 files, 4.8 MiB, every hash right" in pulled.stdout
    again = json.loads(roost("pull", "runs/one/drafter", str(tmp_path / "drafter"), "-H", "lab", "--json").stdout)
    assert again["transfer"]["bytes_moved"] == 0
    pushed = roost("push", str(tmp_path / "drafter"), "imported/drafter", "-H", "lab", "--json")
    assert json.loads(pushed.stdout)["transfer"]["path"] == f"{embedded.root}/imported/drafter"


def test_the_verbs_refuse_with_their_exit_codes(embedded: HostConfig, artifact: Path, tmp_path: Path) -> None:
    name_in_configuration(embedded)
    assert roost("push", str(tmp_path / "nothing"), "imported/x", "-H", "lab").returncode == 2
    make_artifact(tmp_path / "other", {"x": b"1"})
    assert roost("push", str(tmp_path / "other"), "runs/one/drafter", "-H", "lab").returncode == 5
    assert roost("pull", "runs/none", str(tmp_path / "none"), "-H", "lab").returncode == 2


async def test_the_console_end_that_breaks_is_an_error(
    embedded: HostConfig, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.link.bulk.sys.executable", "/bin/false")
    with pytest.raises(ConsoleError, match="end on this machine broke"):
        await move(embedded, Transfer("pull", tmp_path / "copy", str(artifact)))
