"""What an AI agent may do on a host (pure)."""

from typing import Literal

Policy = Literal["read-only", "operate", "full"]
"""`read-only` looks; `operate` starts, stops and moves into the trash, each with its confirmation; `full` also does what cannot be undone."""

_ORDER: tuple[Policy, ...] = ("read-only", "operate", "full")


def allows(policy: Policy, needed: Policy) -> bool:
    """Whether what needs `needed` may be done under `policy`."""
    return _ORDER.index(policy) >= _ORDER.index(needed)


def stricter(one: Policy, other: Policy) -> Policy:
    """The one of two policies that allows less."""
    return one if allows(other, one) else other
