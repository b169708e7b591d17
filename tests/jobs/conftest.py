"""Real jobs of trivial work."""

from hypothesis import HealthCheck, settings

from tests.jobs.workshop import workshop

__all__ = ["workshop"]

settings.register_profile("loaded-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded-machine")
