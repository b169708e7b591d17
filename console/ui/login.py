"""What a login may have to ask a person: whether to trust a host's key, and the passphrase of his own."""

from textual.app import App

from console import operations_hosts
from console.errors import UnknownHostKey
from console.ui.screens.dialogs import AskPassphrase, Confirm, host_key_question


async def ask_for_trust(app: App[int], host: str, unknown: UnknownHostKey) -> bool:
    """Show the key of a host that nobody has accepted yet; True once it is trusted. Raises ConsoleError."""
    yes = await app.push_screen_wait(Confirm("Unknown host key", host_key_question(unknown.info), yes="Trust it"))
    if yes:
        await operations_hosts.trust_host(host, unknown.fingerprint)
    return bool(yes)


async def ask_passphrase(app: App[int], question: str) -> str | None:
    """Ask for the passphrase of an encrypted key; None when he does not want to say."""
    return await app.push_screen_wait(AskPassphrase(question))
