"""The agent `training`."""
