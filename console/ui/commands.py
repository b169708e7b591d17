"""The command palette offers the same actions as the keys."""

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from console.ui.keymap import ACTIONS, Action, key_name


class ActionCommands(Provider):
    """The action table, searchable."""

    async def discover(self) -> Hits:
        """All actions, before anything is typed."""
        for action in _actions(self):
            run = partial(self.app.run_action, action.action)
            yield DiscoveryHit(f"{action.label} ({key_name(action)})", run, help=action.help)

    async def search(self, query: str) -> Hits:
        """Actions whose name or help matches."""
        matcher = self.matcher(query)
        for action in _actions(self):
            score = matcher.match(f"{action.label} {action.help}")
            if score > 0:
                run = partial(self.app.run_action, action.action)
                yield Hit(score, matcher.highlight(f"{action.label} {action.help}"), run, help=key_name(action))


def _actions(provider: Provider) -> tuple[Action, ...]:
    """Those of the app, which in a replay are others."""
    return getattr(provider.app, "actions", ACTIONS)
