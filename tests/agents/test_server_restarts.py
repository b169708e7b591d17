"""How often, and after which pause, a server is launched again."""

from hypothesis import given
from hypothesis import strategies as st

from remote.agents.server.restarts import FIRST_PAUSE_S, LONGEST_PAUSE_S, SOUND_S, Restarts


def test_nothing_is_launched_again_unless_it_was_asked_for() -> None:
    assert Restarts(0).pause_after(1e9) is None


def test_the_pause_doubles_until_there_is_no_more() -> None:
    restarts = Restarts(3)
    assert [restarts.pause_after(1.0) for _ in range(4)] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, None]
    assert restarts.total == 3


def test_an_engine_that_served_long_enough_counts_from_the_beginning() -> None:
    restarts = Restarts(1)
    assert restarts.pause_after(1.0) == FIRST_PAUSE_S
    assert restarts.pause_after(SOUND_S) == FIRST_PAUSE_S
    assert restarts.pause_after(SOUND_S - 1) is None
    assert restarts.total == 2


@given(st.integers(0, 100), st.lists(st.floats(0, 10 * SOUND_S), max_size=120))
def test_in_a_row_there_are_never_more_than_allowed_and_no_pause_is_too_long(most: int, served: list[float]) -> None:
    restarts, short = Restarts(most), 0
    for seconds in served:
        short = 0 if seconds >= SOUND_S else short
        pause = restarts.pause_after(seconds)
        if pause is None:
            assert short == most
            break
        short += 1
        assert short <= most
        assert FIRST_PAUSE_S <= pause <= LONGEST_PAUSE_S
