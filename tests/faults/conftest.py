"""What the fault tests break: real jobs, real SSH servers."""

from tests.jobs.workshop import workshop

__all__ = ["workshop"]
