"""What time on a host costs, where `roost.toml` says what an hour of it does."""

import msgspec

_HOUR_S = 3600.0
_WHOLE_FROM = 1000.0


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """`per_hour` of the whole host, in `currency`."""

    per_hour: float
    currency: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """`amount` of `currency` for `seconds` at `price_per_hour`; both None where the time is not known."""

    amount: float | None
    currency: str
    price_per_hour: float
    seconds: float | None


def cost_of(price: Price | None, seconds: float | None) -> Cost | None:
    """Hours times price; None without a price."""
    if price is None:
        return None
    amount = None if seconds is None else seconds / _HOUR_S * price.per_hour
    return Cost(amount=amount, currency=price.currency, price_per_hour=price.per_hour, seconds=seconds)


def price_words(price: Price) -> str:
    """`18.00 USD an hour`."""
    return f"{_money(price.per_hour)} {price.currency} an hour"


def cost_words(cost: Cost) -> str:
    """`about 43.20 USD at 18.00 USD an hour`; the price alone where the time is not known."""
    price = price_words(Price(per_hour=cost.price_per_hour, currency=cost.currency))
    if cost.amount is None:
        return f"{price}; how long it takes is not known yet"
    return f"about {_money(cost.amount)} {cost.currency} at {price}"


def _money(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= _WHOLE_FROM else f"{amount:.2f}"
