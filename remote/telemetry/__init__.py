"""Readings of the host: processor, GPUs, disks, inference servers."""
