"""The embedded host: this machine in the user's own account, behind a loopback SSH server; an ordinary host to everything above."""
