"""`[notifications]` of `roost.toml`: how an open screen gets a person's attention."""

import msgspec


class NotificationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terminal's bell, a notification of the desktop by the terminal (OSC 9), and a command that gets the notification as JSON.

    The command is run without a shell, in the console's own environment, with `ROOST_NOTIFICATION_TEXT` besides.
    """

    bell: bool = True
    desktop: bool = False
    command: list[str] = []
