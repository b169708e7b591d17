"""Real jobs, and a recorder that is stepped by hand or runs as a job of its own."""

from tests.jobs.workshop import workshop
from tests.nvml_standin.gpu_shop import gpu_shop
from tests.nvml_standin.nvml_standin import nvml_library, nvml_standin

__all__ = ["gpu_shop", "nvml_library", "nvml_standin", "workshop"]
