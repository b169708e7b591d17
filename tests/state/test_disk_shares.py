"""What of a disk's content is listed, and what lies elsewhere."""

from hypothesis import given
from hypothesis import strategies as st

from console.state.disk_shares import bytes_elsewhere
from remote.protocol.storage import StorageEntry, StorageReport, TrashEntry
from remote.protocol.telemetry import MountSample


def mount(path: str, used: int) -> MountSample:
    return MountSample(
        path=path,
        used_bytes=used,
        total_bytes=10_000,
        free_bytes=10_000 - used,
        free_inodes=None,
        fill_rate_bytes_per_s=None,
    )


def entry(path: str, size: int) -> StorageEntry:
    return StorageEntry(path=path, kind="other", bytes=size, files=1, modified_at=0.0)


def test_what_lies_on_an_inner_mount_is_none_of_the_outer_ones() -> None:
    gone = TrashEntry(name="t", path="/data/trash/t", origin="/x", bytes=50, files=1, trashed_at=0.0, trashed_by="ann")
    report = StorageReport(
        root="/data/roost",
        mounts=[mount("/", 700), mount("/data", 400)],
        entries=[entry("/data/roost/a", 300), entry("/home/a", 100), entry("/database", 1)],
        trash=[gone],
    )
    assert bytes_elsewhere(report) == {"/": 599, "/data": 50}


@given(st.lists(st.integers(0, 3000)), st.integers(0, 10_000))
def test_it_is_never_below_nothing_and_adds_up_where_the_disk_holds_all_of_it(sizes: list[int], used: int) -> None:
    entries = [entry(f"/{index}", size) for index, size in enumerate(sizes)]
    left = bytes_elsewhere(StorageReport(root="/", mounts=[mount("/", used)], entries=entries, trash=[]))["/"]
    assert left == max(0, used - sum(sizes))
