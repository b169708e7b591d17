"""A receiver for the notifications that are posted."""

from tests.notifications.receiver import receiver

__all__ = ["receiver"]
