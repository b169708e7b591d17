"""The agent `extraction`."""
