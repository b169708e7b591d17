"""The watchdog's judgement: silence kills, a clock that was set does not."""

from hypothesis import given
from hypothesis import strategies as st

from console.link.watchdog import Alive, Dead, LinkTimings, Suspect, Watchdog

TIMINGS = LinkTimings(silence_s=8.0, sleep_s=5.0)


def watchdog() -> Watchdog:
    return Watchdog(TIMINGS, monotonic=100.0, wall=1000.0)


def test_silence_is_told_with_its_length() -> None:
    dog = watchdog()
    assert [type(dog.check(100.0 + n, 1000.0 + n)) for n in range(1, 9)] == [Alive] * 8
    assert dog.check(109.0, 1009.0) == Dead(9.0)


def test_a_word_from_the_host_ends_the_silence() -> None:
    dog = watchdog()
    dog.check(104.0, 1004.0)
    dog.heard(107.0)
    dog.check(108.0, 1008.0)
    assert dog.check(112.0, 1012.0) == Alive()


def test_a_sleep_of_this_computer_makes_the_host_suspect_and_not_dead() -> None:
    dog = watchdog()
    assert dog.check(101.0, 1000.0 + 3600.0) == Suspect()
    assert dog.check(102.0, 1001.0 + 3600.0) == Alive()


def test_a_gap_in_our_own_time_does_not_count_as_the_hosts_silence() -> None:
    dog = watchdog()
    assert dog.check(400.0, 1300.0) == Suspect()
    assert dog.check(401.0, 1301.0) == Alive()


@given(st.lists(st.tuples(st.floats(0.1, 4.0), st.floats(-1e6, 1e6)), max_size=50))
def test_no_setting_of_the_clock_kills_a_link_that_speaks(steps: list[tuple[float, float]]) -> None:
    dog = watchdog()
    monotonic, wall = 100.0, 1000.0
    for passed, clock_step in steps:
        monotonic += passed
        wall += passed + clock_step
        dog.heard(monotonic)
        assert not isinstance(dog.check(monotonic, wall), Dead)


@given(st.lists(st.floats(0.1, 4.0), min_size=3, max_size=50))
def test_a_silent_host_is_dead_once_and_only_when_the_silence_is_too_long(steps: list[float]) -> None:
    dog = watchdog()
    passed = 0.0
    for step in steps:
        passed += step
        found = dog.check(100.0 + passed, 1000.0 + passed)
        assert isinstance(found, Dead) == (100.0 + passed - 100.0 > TIMINGS.silence_s)
