"""How often each reason of a quarantine is there."""

from hypothesis import given
from hypothesis import strategies as st

from remote.artifacts.quarantine import Quarantined, count_reasons
from remote.protocol.progress import QuarantineReason


def left_out(*reasons: str) -> list[Quarantined]:
    return [Quarantined(sample_id=f"s{number}", reason=reason) for number, reason in enumerate(reasons)]


def test_reasons_that_differ_in_numbers_are_one_and_keep_the_numbers_that_all_have() -> None:
    entries = left_out(
        "token 200,000: the target has 163,840",
        "no answer within 2048 tokens",
        "token 163840: the target has 163,840",
        "token 7: the target has 163,840.",
    )
    assert count_reasons(entries) == [
        QuarantineReason(reason="token …: the target has 163,840", samples=2),
        QuarantineReason(reason="no answer within 2048 tokens", samples=1),
        QuarantineReason(reason="token 7: the target has 163,840.", samples=1),
    ]


def test_a_single_reason_is_told_as_it_is() -> None:
    assert count_reasons(left_out("3 rows … 4")) == [QuarantineReason(reason="3 rows … 4", samples=1)]


@given(st.lists(st.text("a1…., ", max_size=8), max_size=40))
def test_the_most_frequent_come_first_and_nothing_is_counted_twice(reasons: list[str]) -> None:
    found = count_reasons(left_out(*reasons))
    counts = [each.samples for each in found]
    assert counts == sorted(counts, reverse=True)
    assert len(found) <= 20
    assert sum(counts) == len(reasons) or len(found) == 20
