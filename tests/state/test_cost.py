"""What time on a host costs."""

import pytest

from console.state.cost import Price, cost_of, cost_words

PRICE = Price(per_hour=18.0, currency="EUR")


def test_nothing_is_said_of_money_without_a_price() -> None:
    assert cost_of(None, 3600.0) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (8640.0, "about 43.20 EUR at 18.00 EUR an hour"),
        (360_000.0, "about 1,800 EUR at 18.00 EUR an hour"),
        (None, "18.00 EUR an hour; how long it takes is not known yet"),
    ],
)
def test_hours_times_price(seconds, words) -> None:
    cost = cost_of(PRICE, seconds)
    assert cost is not None
    assert cost_words(cost) == words
