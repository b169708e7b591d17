"""The agent `evaluation`."""
