"""Real jobs of trivial work."""

from hypothesis import HealthCheck, settings

from tests.jobs.workshop import workshop
from tests.nvml_standin.gpu_shop import gpu_shop, other_root
from tests.nvml_standin.nvml_standin import nvml_library, nvml_standin

__all__ = ["gpu_shop", "nvml_library", "nvml_standin", "other_root", "workshop"]

settings.register_profile("loaded-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded-machine")
