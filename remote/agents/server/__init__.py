"""The agent `server`."""
