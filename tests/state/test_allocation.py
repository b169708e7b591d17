"""What Slurm's queue says of an allocation."""

import pytest

from console.state.allocation import Allocation, Ending, Pending, Running, read_queue


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("7|RUNNING|None|gpu01|1796287344|1796373744", Running(node="gpu01", ends_at=1796373744.0)),
        ("7|RUNNING|None|gpu01|1796287344|NONE", Running(node="gpu01", ends_at=None)),
        ("7|PENDING|Resources||1796287344|1796373744", Pending(reason="Resources", starts_at=1796287344.0)),
        ("7|PENDING|Priority||N/A|N/A", Pending(reason="Priority", starts_at=None)),
        ("7|PENDING|None||N/A|N/A", Pending(reason="", starts_at=None)),
        ("7|CONFIGURING|None|gpu01|1796287344|N/A", Pending(reason="CONFIGURING", starts_at=1796287344.0)),
        ("7|COMPLETING|None|gpu01|1796287344|1796287400", Ending(word="COMPLETING")),
    ],
)
def test_a_line_of_the_queue_is_a_state(line: str, state: Running | Pending | Ending) -> None:
    assert read_queue(line + "\n") == Allocation(slurm_job=7, state=state)


def test_of_several_the_one_that_runs_is_it_then_the_one_that_has_waited_longest() -> None:
    ending, running = "5|COMPLETING|None|a|1|2", "6|RUNNING|None|b|3|4"
    waiting = ["7|PENDING|Dependency||N/A|N/A", "8|PENDING|Dependency||N/A|N/A"]
    found = [read_queue("\n".join(lines)) for lines in ([ending, *waiting, running], [ending, *waiting], [ending], [])]
    assert [one and one.slurm_job for one in found] == [6, 7, 5, None]


@pytest.mark.parametrize("text", ["slurm_load_jobs error: Unable to contact slurm controller", "a|b|c|d|e|f"])
def test_what_is_no_queue_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever does not fit
        read_queue(text)
