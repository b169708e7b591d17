"""The agent `vocabulary`."""
