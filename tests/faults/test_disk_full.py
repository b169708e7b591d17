"""Full disks under real jobs: how they end is recorded, they are paused with the reason, they can be stopped, nothing is torn."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remote.agents.room import Room
from remote.artifacts import atomic, reserve
from remote.errors import Precondition
from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.pipeline.children import Children
from remote.protocol.jobs import Finished, Paused, Running
from remote.protocol.progress import Note
from remote.protocol.specs import MappingCopySpec, Spec
from tests.faults.small_disks import SmallDisk
from tests.jobs.workshop import RELEASE, Workshop, end_everything_below

KIMI = Path(__file__).parents[1] / "golden/kimi-k2.5-vocabulary"

HARNESSED = """
import time
from pathlib import Path
from remote.agents.harness import main
from remote.protocol.jobs import JobResult
from remote.protocol.progress import FilesCopied, Note
from remote.protocol.specs import MappingCopySpec
go, gone = Path({go!r}), Path({gone!r})
def wait_for(path):
    while not path.exists():
        time.sleep(0.02)
def work(spec, job):
    job.tell(Note(level="info", text="ready"))
    wait_for(go)
    for number in range(3):
        print("x" * 300_000)
        job.tell(Note(level="info", text=f"note {{number}}" + " " * 4096))
        job.tell(FilesCopied(bytes_done=number, bytes_total=3))
    gone.touch()
    {then}
    return JobResult(summary={{"told": 3}})
main(MappingCopySpec, work)
"""


def plan_harnessed(spec: Spec) -> LaunchPlan:
    assert isinstance(spec, MappingCopySpec)
    return LaunchPlan(agent="mapping_copy", argv=[sys.executable, "-c", spec.source], stop_grace_s=5.0)


class Shop(Workshop):
    """Jobs under the real harness, and the files by which the test and their work know of each other."""

    def __init__(self, root: Path, home: Path) -> None:
        super().__init__(root)
        self.store = JobStore(root, RELEASE, sys.executable, plan=plan_harnessed)
        self.go, self.gone = home / "go", home / "gone"

    def begin(self, then: str = "pass") -> None:
        self.start("job", HARNESSED.format(go=str(self.go), gone=str(self.gone), then=then))
        self.until("job", lambda job: job.progress_seq == 1)

    def notes(self) -> list[str]:
        records = self.store.read_progress("job")
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        return [record.event.text.strip() for record in records if isinstance(record.event, Note)]


@pytest.fixture
def shop_at(tmp_path: Path) -> Iterator[Callable[[Path], Shop]]:
    made: list[Shop] = []

    def make(root: Path) -> Shop:
        made.append(Shop(root, tmp_path))
        return made[-1]

    yield make
    end_everything_below(tmp_path)
    for shop in made:
        shutil.rmtree(shop.store._locks)


@pytest.fixture
def no_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reserve.SIZE_VARIABLE, "0")


def test_ansible_async_wrapper_a_full_disk_never_replaces_a_good_status_by_an_empty_one(small_disk: SmallDisk) -> None:
    status = small_disk.path / "status.json"
    atomic.write_atomic(status, b'{"finished": 1}')
    small_disk.fill()
    with pytest.raises(OSError, match="No space left"):
        atomic.write_atomic(status, b"x" * 4096)
    assert status.read_bytes() == b'{"finished": 1}'
    assert {path.name for path in small_disk.path.iterdir()} == {"status.json", "fillers"}


def test_the_exit_is_recorded_on_a_disk_with_nothing_left(
    small_disk: SmallDisk, shop_at: Callable[[Path], Shop]
) -> None:
    shop = shop_at(small_disk.path / "root")
    shop.begin()
    small_disk.fill()
    assert small_disk.bytes_free == 0
    shop.go.touch()
    job = shop.until("job", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert (job.state.outcome, job.state.exit_code) == ("succeeded", 0), job.state.reason
    assert shop.notes() == ["ready", "note 0", "note 1", "note 2"]
    assert job.result is not None
    assert job.result.summary == {"told": 3}


def test_a_failure_is_recorded_on_a_disk_with_nothing_left(
    small_disk: SmallDisk, shop_at: Callable[[Path], Shop]
) -> None:
    shop = shop_at(small_disk.path / "root")
    shop.begin(then="raise ValueError('the reason')")
    small_disk.fill()
    shop.go.touch()
    job = shop.until("job", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.outcome == "failed"
    assert "the reason" in job.state.reason


def test_a_job_can_be_stopped_on_a_disk_with_nothing_left(
    small_disk: SmallDisk, shop_at: Callable[[Path], Shop]
) -> None:
    shop = shop_at(small_disk.path / "root")
    shop.begin(then="job.stop_requested.wait(); job.check_stop()")
    shop.go.touch()
    shop.wait_for(shop.gone.exists)
    small_disk.fill()
    shop.stop("job")
    job = shop.until("job", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.outcome == "stopped"


def test_the_exit_is_recorded_without_any_inode_left(few_inodes: SmallDisk, shop_at: Callable[[Path], Shop]) -> None:
    shop = shop_at(few_inodes.path / "root")
    shop.begin()
    few_inodes.use_up_inodes()
    assert few_inodes.inodes_free == 0
    shop.go.touch()
    job = shop.until("job", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.outcome == "succeeded", job.state.reason


@pytest.mark.usefixtures("no_reserve")
def test_without_a_reserve_the_job_waits_with_its_result_and_tells_everything_later(
    small_disk: SmallDisk, shop_at: Callable[[Path], Shop]
) -> None:
    shop = shop_at(small_disk.path / "root")
    shop.begin()
    small_disk.fill()
    shop.go.touch()
    shop.wait_for(shop.gone.exists)
    assert "note 2" not in shop.notes()
    beat = (shop.store.directory("job") / "heartbeat").stat().st_mtime
    shop.wait_for(lambda: (shop.store.directory("job") / "heartbeat").stat().st_mtime > beat)
    shop.wait_for(lambda: not list(shop.store.directory("job").glob("*.part")))
    assert isinstance(shop.store.get("job").state, Running)
    small_disk.make_room()
    job = shop.until("job", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.outcome == "succeeded", job.state.reason
    assert [note for note in shop.notes() if note.startswith(("ready", "note"))] == [
        "ready",
        "note 0",
        "note 1",
        "note 2",
    ]


@pytest.mark.usefixtures("no_reserve")
def test_a_change_that_finds_no_room_is_refused_and_changes_nothing(
    small_disk: SmallDisk, shop_at: Callable[[Path], Shop]
) -> None:
    shop = shop_at(small_disk.path / "root")
    small_disk.fill()
    with pytest.raises(Precondition, match="no room left on the disk"):
        shop.start("job", "print('never')")
    small_disk.make_room()
    job = shop.store.start("job", shop.spec("raise SystemExit(3)"), actor="ann", op_id="again")
    job = shop.until("job", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.exit_code == 3


@pytest.mark.usefixtures("no_reserve")
def test_a_run_that_finds_no_room_to_start_a_job_waits_with_it(
    small_disk: SmallDisk, shop_at: Callable[[Path], Shop], tmp_path: Path
) -> None:
    shop = shop_at(small_disk.path / "root")
    stop, said = threading.Event(), list[str]()
    (tmp_path / "run").mkdir()
    children = Children(shop.store, "run", stop, Room(tmp_path / "run", tmp_path, stop, said.append))
    small_disk.fill()
    starting = threading.Thread(target=children.start, args=("copy", shop.spec("raise SystemExit(3)")))
    starting.start()
    shop.wait_for((tmp_path / "run/pause.json").exists)
    assert shop.store.list() == []
    small_disk.make_room()
    starting.join()
    job = shop.until("run-copy", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.exit_code == 3
    assert [sentence.split(" ")[0] for sentence in said] == ["paused:", "goes"]


def test_a_log_on_a_full_disk_ends_nobody_and_says_what_it_lost(
    small_disk: SmallDisk, shop_at: Callable[[Path], Shop], tmp_path: Path
) -> None:
    shop = shop_at(small_disk.path / "root")
    wait = f"wait_for(Path({str(tmp_path / 'room')!r})); print('the end')"
    shop.begin(then=wait)
    small_disk.fill()
    shop.go.touch()
    shop.wait_for(shop.gone.exists)
    small_disk.make_room()
    (tmp_path / "room").touch()
    job = shop.until("job", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.outcome == "succeeded"
    log = shop.store.read_log("job", 0, 1 << 20).data
    assert log.count(b"x") < 3 * 300_000
    assert b"bytes of this log found no room on the disk]\n" in log
    assert log.endswith(b"the end\n")


@pytest.fixture
def waiting(small_disk: SmallDisk, tmp_path: Path) -> Iterator[tuple[Workshop, SmallDisk]]:
    """A copy that waits for room on a full disk, while its records have all that they need."""
    shop = Workshop(tmp_path / "root")
    shop.store = JobStore(tmp_path / "root", RELEASE, sys.executable)
    small_disk.fill(leave=64 << 10)
    spec = MappingCopySpec(source=str(KIMI), destination=str(small_disk.path / "copy"))
    shop.store.start("copy", spec, actor="ann", op_id="start-copy")
    shop.until("copy", lambda job: isinstance(job.state, Paused))
    yield shop, small_disk
    end_everything_below(tmp_path)
    shutil.rmtree(shop.store._locks)


def test_a_job_without_room_is_paused_and_goes_on_by_itself(waiting: tuple[Workshop, SmallDisk]) -> None:
    shop, disk = waiting
    state = shop.store.get("copy").state
    assert isinstance(state, Paused)
    assert state.reason.startswith(f"no room to write {disk.path}/copy: ")
    assert "64.0 KiB free" in state.reason
    assert not list(disk.path.glob("copy*"))
    disk.make_room()
    job = shop.until("copy", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert job.state.outcome == "succeeded", job.state.reason
    assert job.result is not None
    told = [record.event.text for record in shop.store.read_progress("copy") if isinstance(record.event, Note)]
    assert [note.split(" ")[0] for note in told] == ["paused:", "goes"]


def test_a_paused_job_can_be_stopped(waiting: tuple[Workshop, SmallDisk]) -> None:
    shop, disk = waiting
    shop.stop("copy")
    job = shop.until("copy", lambda job: isinstance(job.state, Finished))
    assert isinstance(job.state, Finished)
    assert (job.state.outcome, job.state.exit_code) == ("stopped", 143)
    assert not list(disk.path.glob("copy*"))
    assert not (shop.store.directory("copy") / "pause.json").exists()


def test_a_reserve_that_was_used_is_made_again(small_disk: SmallDisk, shop_at: Callable[[Path], Shop]) -> None:
    shop = shop_at(small_disk.path / "root")
    home = shop.root / reserve.NAME
    whole = len(list(home.iterdir()))
    assert whole == reserve.PIECES
    small_disk.fill()
    reserve.write_atomic(shop.root, shop.root / "record", json.dumps({"a": "b" * 200}).encode())
    assert len(list(home.iterdir())) < whole
    shop.store.recover_all()
    assert len(list(home.iterdir())) < whole, "not while the room is needed"
    small_disk.make_room()
    shop.store.recover_all()
    assert len(list(home.iterdir())) == whole


def test_the_engine_prints_on_through_a_full_disk(small_disk: SmallDisk) -> None:
    """What the capture plugin does in every process of the engine, a log on a full disk under it."""
    capture = RELEASE / "remote/engines/sglang_capture"
    program = (
        "import roost_sglang_capture, sys; roost_sglang_capture.register();"
        "[print('y' * 5000) for _ in range(9)]; sys.stderr.write('z' * 5000); sys.exit(7)"
    )
    small_disk.fill()
    with (small_disk.path / "fillers/log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(capture), "ROOST_CAPTURE_SPOOL": ""},
            stdout=log,
            stderr=log,
            check=False,
        )
    assert done.returncode == 7
