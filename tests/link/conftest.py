"""Real SSH servers on loopback."""

from tests.link.servers import embedded, home, openssh, proxy

__all__ = ["embedded", "home", "openssh", "proxy"]
