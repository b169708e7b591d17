"""What the fault tests break: real jobs, real SSH servers."""

from tests.jobs.workshop import workshop
from tests.nvml_standin.gpu_shop import gpu_shop, other_root
from tests.nvml_standin.nvml_standin import nvml_library, nvml_standin

__all__ = ["gpu_shop", "nvml_library", "nvml_standin", "other_root", "workshop"]
