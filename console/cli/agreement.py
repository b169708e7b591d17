"""A person's yes to what a verb is about to change: said beforehand, asked for, or waited for in the host's inbox."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from msgspec import structs

from console.cli.manners import may_ask
from console.errors import ApprovalAwaited, ConfirmationNeeded
from console.operations_approvals import petitioning


@contextmanager
def agreement(question: str, *, said: str | None, expected: str, message: str, again: str) -> Iterator[None]:
    """What runs within was agreed to: `said` is the word of the command line, `again` the command that says it.

    Where there is nobody to ask, the change within goes into the host's inbox, and ApprovalAwaited is raised. Raises ConfirmationNeeded for
    a no, and for a word that is not `expected`.
    """
    if said == expected:
        yield
    elif said is None and not may_ask():
        try:
            with petitioning(message):
                yield
        except ApprovalAwaited as awaited:
            hint = f"{awaited.info.hint}; if a person told you to: {again}"
            awaited.info = structs.replace(awaited.info, hint=hint)
            raise
    elif may_ask() and typer.confirm(question, default=False, err=True):
        yield
    else:
        raise ConfirmationNeeded(message, next_command=again)
