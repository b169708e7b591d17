"""Hosts with devices that are played, to see what trouble looks like without having it."""

from console.config.hosts import HostConfig
from console.embedded import demo, nvml_standin


def list_scenarios() -> dict[str, str]:
    """Every scenario with its description."""
    return nvml_standin.scenarios()


async def start_demo(scenario: str) -> HostConfig:
    """The host that plays a scenario, from its beginning; raises ConsoleError without a C compiler."""
    return await demo.ensure_running(scenario, anew=True)


async def stop_demos() -> list[str]:
    """Stop all hosts that play scenarios with everything that they run; their names."""
    return await demo.stop_all()
