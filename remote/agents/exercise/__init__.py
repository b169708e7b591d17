"""The job of a demo host."""
