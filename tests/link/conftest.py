"""Real SSH servers on loopback."""

from tests.link.servers import embedded, home, openssh, proxy
from tests.link.slurm_cluster import slurm

__all__ = ["embedded", "home", "openssh", "proxy", "slurm"]
