"""On the PYTHONPATH of an engine that captures: what finished requests go through to the disk."""
