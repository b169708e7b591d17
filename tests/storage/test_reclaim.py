"""What goes, what stays, what is refused; and that a mistake can be taken back."""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remote.artifacts import trash
from remote.errors import Conflict, NotFound, Precondition
from remote.protocol.jobs import Finished
from remote.protocol.specs import RunSpec
from remote.protocol.storage import ReclaimPlan
from remote.storage.reclaim import move_to_trash, plan_reclaim, restore
from remote.storage.usage import read_storage
from tests.storage.conftest import run_config

KEPT = {"mapping", "verdict"}


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def carry_out(host, plan: ReclaimPlan, op_id: str = "op-1"):
    return move_to_trash(host.store, plan.paths, plan.token, actor="ann", op_id=op_id).entries


def refusal(host, path: str | Path) -> str:
    plan = plan_reclaim(host.store, [str(path)])
    assert plan.paths == []
    (problem,) = plan.problems
    return problem


def test_a_run_goes_and_what_is_small_and_precious_stays(host) -> None:
    run = host.run("old")
    plan = plan_reclaim(host.store, ["runs/old"])
    assert (plan.problems, plan.paths) == ([], [str(run)])
    assert {Path(item.path).name for item in plan.kept} == KEPT
    assert plan.files == 8
    (entry,) = carry_out(host, plan)
    assert {path.name for path in run.iterdir()} == KEPT
    assert (entry.origin, entry.trashed_by, entry.files) == (str(run), "ann", 8)
    assert Path(entry.path).parent == host.root / "trash"


def test_what_is_named_goes_even_when_it_is_precious(host) -> None:
    run = host.run("old")
    carry_out(host, plan_reclaim(host.store, [str(run / "mapping")]))
    assert not (run / "mapping").exists()
    assert (run / "verdict").exists()


def test_a_restore_puts_everything_back(host) -> None:
    run = host.run("old")
    before = tree(run)
    (entry,) = carry_out(host, plan_reclaim(host.store, ["runs/old"]))
    left = restore(host.store, entry.name, actor="ann", op_id="back")
    assert left.entries == []
    assert tree(run) == before
    assert restore(host.store, entry.name, actor="ann", op_id="back").entries == [], "the same operation twice"
    with pytest.raises(NotFound):
        restore(host.store, entry.name, actor="ann", op_id="once-more")


def test_a_restore_replaces_nothing(host) -> None:
    run = host.run("old")
    (entry,) = carry_out(host, plan_reclaim(host.store, ["runs/old"]))
    (run / "store").mkdir()
    with pytest.raises(Conflict, match="is there again"):
        restore(host.store, entry.name, actor="ann", op_id="back")
    assert not (run / "checkpoints").exists(), "nothing was put back"
    assert trash.is_entry(Path(entry.path))


def test_the_same_operation_twice_moves_once(host) -> None:
    host.run("old")
    plan = plan_reclaim(host.store, ["runs/old"])
    assert carry_out(host, plan) == carry_out(host, plan)


def test_a_finished_job_goes_as_a_whole(host) -> None:
    host.run("old")
    part = host.store.directory("run-old") / "part"
    part.mkdir()
    assert "they go as a whole" in refusal(host, part)
    carry_out(host, plan_reclaim(host.store, ["jobs/run-old"]))
    with pytest.raises(NotFound):
        host.store.get("run-old")


def test_what_a_live_job_uses_stays(host) -> None:
    run = host.run("busy")
    assert "is in use by run-busy" in refusal(host, run)
    assert "is in use by run-busy" in refusal(host, run / "store")
    assert "is in use by run-busy" in refusal(host, "jobs/run-busy")


def test_what_changed_since_the_plan_stays(host) -> None:
    run = host.run("old")
    plan = plan_reclaim(host.store, ["runs/old"])
    (run / "store/data.bin").write_bytes(b"new")
    with pytest.raises(Conflict, match="changed since the plan"):
        carry_out(host, plan)
    assert (run / "store/data.bin").read_bytes() == b"new"


def test_a_plan_of_long_ago_is_refused(host) -> None:
    run = host.run("old")
    plan = plan_reclaim(host.store, ["runs/old"], expires_at=time.time() - 60)
    with pytest.raises(Conflict, match="too old"):
        carry_out(host, plan)
    with pytest.raises(Conflict, match="no token"):
        move_to_trash(host.store, plan.paths, "nonsense", actor="ann", op_id="op-2")
    assert (run / "store").exists()


def test_a_token_stands_for_its_own_paths_only(host) -> None:
    host.run("old")
    host.run("older")
    plan = plan_reclaim(host.store, ["runs/old"])
    with pytest.raises(Conflict):
        move_to_trash(host.store, ["runs/older"], plan.token, actor="ann", op_id="op-1")


def test_links_and_strange_places_are_refused(host, tmp_path: Path) -> None:
    run = host.run("old")
    precious = tmp_path / "precious"
    fill_foreign(precious)
    (run / "link").symlink_to(precious)
    (host.root / "runs/alias").symlink_to(run)
    assert "reached by a link" in refusal(host, run / "link")
    assert "reached by a link" in refusal(host, "runs/alias")
    assert "nothing of a run or a job" in refusal(host, precious)
    assert "nothing of a run or a job" in refusal(host, "runs/old/../../../precious")
    assert "nothing of a run or a job" in refusal(host, host.root)
    assert "nothing of a run or a job" in refusal(host, "/")
    assert "there is no " in refusal(host, "runs/nothing")
    carry_out(host, plan_reclaim(host.store, ["runs/old"]))
    assert tree(precious) == {"thesis.txt": b"years of work"}, "a link is moved, never followed"


def fill_foreign(directory: Path) -> None:
    directory.mkdir()
    (directory / "thesis.txt").write_text("years of work")


def test_a_directory_that_roost_did_not_make_is_refused(host) -> None:
    mine = host.root / "runs/mine"
    mine.parent.mkdir()
    fill_foreign(mine)
    assert "nothing in" in refusal(host, mine)


def test_a_run_outside_of_the_root_has_its_trash_beside_it(host, tmp_path: Path) -> None:
    elsewhere = tmp_path / "volume/run"
    run = host.run("far", str(elsewhere))
    (entry,) = carry_out(host, plan_reclaim(host.store, [str(run)]))
    assert Path(entry.path).parent == tmp_path / "volume/.roost-trash"
    assert [found.name for found in read_storage(host.store).trash] == [entry.name]
    restore(host.store, entry.name, actor="ann", op_id="back")
    assert (run / "store/data.bin").exists()


@pytest.mark.parametrize("moves", range(4))
def test_a_crash_while_moving_loses_nothing(host, monkeypatch: pytest.MonkeyPatch, moves: int) -> None:
    """The machine dies after some of the renames: every file is in one of the two places, and a restore brings them home."""
    run = host.run("old")
    before = tree(run)
    real, done = trash.rename_without_replacing, []

    def dying(source: Path, destination: Path) -> None:
        if len(done) == moves:
            raise KeyboardInterrupt
        real(source, destination)
        done.append(source)

    monkeypatch.setattr(trash, "rename_without_replacing", dying)
    with pytest.raises(KeyboardInterrupt):
        carry_out(host, plan_reclaim(host.store, ["runs/old"]))
    monkeypatch.undo()
    (entry,) = read_storage(host.store).trash
    restore(host.store, entry.name, actor="ann", op_id="back")
    assert tree(run) == before


def test_usage_names_every_part_the_largest_first(host) -> None:
    run = host.run("old")
    (run / "store/big.bin").write_bytes(os.urandom(1 << 20))
    (host.root / "models").mkdir()
    report = read_storage(host.store)
    first = report.entries[0]
    assert (first.path, first.kind, first.kept_because) == (str(run / "store"), "store", None)
    assert first.bytes >= 1 << 20
    by_path = {entry.path: entry for entry in report.entries}
    assert "small" in by_path[str(run / "mapping")].kept_because
    assert "Roost did not make it" in by_path[str(host.root / "models")].kept_because
    assert by_path[str(host.store.directory("run-old"))].kind == "job"
    assert report.mounts[0].free_bytes > 0


def test_a_plain_file_that_fills_the_disk_is_in_the_usage_and_is_refused_with_a_way_on(host) -> None:
    filler, stray = host.root / "core.4711", host.root / "runs/notes.txt"
    filler.write_bytes(os.urandom(1 << 20))
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("mine")
    by_path = {entry.path: entry for entry in read_storage(host.store).entries}
    assert by_path[str(filler)].bytes >= 1 << 20
    for path in (filler, stray):
        assert (by_path[str(path)].kind, by_path[str(path)].files) == ("other", 1)
        assert "whoever put it there can" in by_path[str(path)].kept_because
        assert "whoever put it there can" in refusal(host, path)
    host.run("old")
    of_roost = {entry.path: entry for entry in read_storage(host.store).entries}[str(host.root / "schema.json")]
    assert of_roost.kept_because == "records of Roost itself"


def test_a_plain_file_in_the_directory_of_a_run_goes_and_comes_back(host) -> None:
    run = host.run("old")
    dump = run / "core.1"
    dump.write_bytes(b"dump")
    assert next(entry for entry in read_storage(host.store).entries if entry.path == str(dump)).kept_because is None
    plan = plan_reclaim(host.store, [str(dump)])
    assert (plan.problems, plan.files) == ([], 1)
    (entry,) = carry_out(host, plan)
    assert not dump.exists()
    restore(host.store, entry.name, actor="ann", op_id="back")
    assert dump.read_bytes() == b"dump"


PIECES = st.sampled_from(
    ["runs", "old", "..", ".", "store", "jobs", "run-old", "", "~", "mapping", "link", "/", "trash"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(pieces=st.lists(PIECES, max_size=7))
def test_no_path_whatsoever_touches_what_is_not_roosts(host, tmp_path: Path, pieces: list[str]) -> None:
    if not (tmp_path / "precious").exists():
        host.run("old")
        fill_foreign(tmp_path / "precious")
        (host.root / "runs/old/link").symlink_to(tmp_path / "precious")
        shutil.copytree(tmp_path / "precious", host.root / "models")
    plan = plan_reclaim(host.store, ["/".join(pieces)])
    allowed = (host.root / "runs/old", host.store.directory("run-old"))
    for path in plan.paths:
        assert any(Path(path) == area or Path(path).is_relative_to(area) for area in allowed)
        assert Path(path).resolve() == Path(path)


def test_the_job_that_was_reclaimed_is_gone_from_the_list(host) -> None:
    host.run("old")
    assert [type(job.state) for job in host.store.list()] == [Finished]
    carry_out(host, plan_reclaim(host.store, ["jobs/run-old"]))
    assert host.store.list() == []


def test_a_mount_inside_is_refused(host) -> None:
    run = host.run("old")
    inside = run / "store/mounted"
    inside.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", inside], capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        assert "another file system" in refusal(host, run)
    finally:
        subprocess.run(["umount", inside], check=True)


def test_precondition_is_raised_when_a_path_of_a_valid_token_came_into_use(host) -> None:
    run = host.run("old")
    plan = plan_reclaim(host.store, ["runs/old"])
    host.store.start("run-busy", RunSpec(run=run_config("busy", "runs/old")), actor="ben", op_id="start-busy")
    with pytest.raises(Precondition, match="in use by run-busy"):
        carry_out(host, plan)
    assert (run / "store").exists()


def test_no_job_appears_while_the_disks_are_changed(host) -> None:
    """Between the last look at who uses a directory and its move, a start waits."""
    host.run("old")
    started = threading.Thread(target=host.run, args=("other",))
    with host.store.changing_storage():
        started.start()
        host.shop.wait_for((host.store._locks / "run-other.change").exists)
        assert not host.store.directory("run-other").exists()
    started.join()
    assert isinstance(host.store.get("run-other").state, Finished)
