"""The inbox of the host: what agents and scripts asked for, to be approved or refused by a person."""

from rich.console import RenderableType

from console.state.approvals import details
from console.state.host import HostState
from console.ui.keymap import APPROVAL_ACTIONS, bindings
from console.ui.screens.detail import DetailScreen
from console.ui.screens.dialogs import Confirm, command_line, intent_body
from console.ui.session import HostSession
from console.ui.views.approvals import approvals_view
from console.ui.widgets.palette import Palette
from remote.protocol.approvals import Approval
from remote.protocol.frames import ApprovalsWaiting


class ApprovalsScreen(DetailScreen):
    """One request in full under the list of all; asked anew whenever the host says that its inbox changed."""

    TITLE_TEXT = "Approvals"
    BINDINGS = bindings(APPROVAL_ACTIONS)

    def __init__(self, session: HostSession, host: str) -> None:
        super().__init__()
        self._session = session
        self._host = host
        self._found: list[Approval] = []
        self._chosen: str | None = None
        self._told: ApprovalsWaiting | None = None

    def on_mount(self) -> None:
        """The arrow keys scroll; what is there is asked for at once."""
        super().on_mount()
        self._look()

    def view(self, state: HostState, now: float, host_now: float, palette: Palette, width: int) -> RenderableType:  # noqa: ARG002
        """The list, and the chosen request."""
        if state.approvals != self._told:
            self._told = state.approvals
            self._look()
        return approvals_view(self._found, self.chosen(), palette)

    def chosen(self) -> Approval | None:
        """The request that the keys are about."""
        named = next((each for each in self._found if each.approval_id == self._chosen), None)
        return named or (self._found[0] if self._found else None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's interface
        """None greys a key out while it would do nothing."""
        chosen = self.chosen()
        if action in ("approve", "refuse"):
            return True if chosen is not None and chosen.state == "waiting" else None
        return True

    def action_next_request(self) -> None:
        """Choose the next one."""
        chosen = self.chosen()
        if chosen is not None:
            self._chosen = self._found[(self._found.index(chosen) + 1) % len(self._found)].approval_id
            self._draw()

    def action_approve(self) -> None:
        """Make the change that was asked for, after a look at it."""
        self.app.run_worker(self._decide(approve=True), group="operation", exclusive=True, exit_on_error=False)

    def action_refuse(self) -> None:
        """Tell whoever asked that it will not be done."""
        self.app.run_worker(self._decide(approve=False), group="operation", exclusive=True, exit_on_error=False)

    async def _decide(self, *, approve: bool) -> None:
        asked = self.chosen()
        if asked is None:
            return
        verb = "approve" if approve else "refuse"
        command = command_line(self._host, "approvals", verb, asked.approval_id, "--confirm", asked.fingerprint)
        body = intent_body(self._host, details(asked), command)
        title = f"{verb.capitalize()} {asked.approval_id}?"
        if not await self.app.push_screen_wait(Confirm(title, body, yes=f"{verb.capitalize()} it")):
            return
        try:
            await self._session.decide_approval(asked, approve=approve)
        finally:
            self._look()

    def _look(self) -> None:
        self.run_worker(self._ask(), group="watch", exclusive=True, exit_on_error=False)

    async def _ask(self) -> None:
        self._found = await self._session.list_approvals()
        self._draw()

    def _draw(self) -> None:
        self.app.refresh_now()  # pyright: ignore[reportAttributeAccessIssue] - the app's own
        self.refresh_bindings()
