"""To set a host up: its key, a look before anything of Roost is there, a Python for it; and the embedded host's own."""

from collections.abc import Callable

from console.embedded import lifecycle
from console.embedded.locations import EmbeddedHome
from console.embedded.prepare import prepare
from console.link import check
from console.link import prepare as prepare_environment
from console.link import session as ssh
from console.link.prepare import EnvironmentPlan
from console.operations import find_host
from console.state.host_check import HostCheck


async def trust_host(name: str, fingerprint: str) -> str:
    """Accept the key of a host, or of the first unknown one on the way to it, whose fingerprint a person has compared; whose it was."""
    return await ssh.trust(await find_host(name), fingerprint)


async def check_host(name: str) -> HostCheck:
    """Look at a host before anything of Roost is on it: login, interpreters, root, machine, and what that means."""
    return await check.check_host(await find_host(name))


async def plan_environment(name: str) -> EnvironmentPlan | None:
    """What `prepare_host` would do on a host; None when a Python there has all that Roost needs. Nothing is changed."""
    found = await check_host(name)
    return prepare_environment.plan_environment(found) if found.python is None else None


async def prepare_host(plan: EnvironmentPlan, report: Callable[[str], None]) -> bool:
    """Make the planned environment, telling the host's output; False when it was there already."""
    return await prepare_environment.build_environment(await find_host(plan.host), plan, report)


def prepare_embedded(report: Callable[[str], None]) -> None:
    """Install what the embedded host needs: the engine's environment, the sample model, the conversations."""
    prepare(EmbeddedHome.default(), report)


async def stop_embedded() -> bool:
    """Stop the embedded host's SSH server, whose jobs go on; False when it did not run."""
    return await lifecycle.stop(EmbeddedHome.default())
