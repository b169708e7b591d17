"""What the fault tests break: real jobs, real SSH servers, the stand-in for NVML."""

from tests.faults.small_disks import few_inodes, mounted, small_disk
from tests.jobs.workshop import workshop
from tests.link.servers import embedded, home, openssh, proxy
from tests.nvml_standin.gpu_shop import gpu_shop, other_root
from tests.nvml_standin.nvml_standin import nvml_library, nvml_standin

__all__ = [
    "embedded",
    "few_inodes",
    "gpu_shop",
    "home",
    "mounted",
    "nvml_library",
    "nvml_standin",
    "openssh",
    "other_root",
    "proxy",
    "small_disk",
    "workshop",
]
