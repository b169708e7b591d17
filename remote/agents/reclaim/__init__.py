"""Deletes what is in the trash for good, as a job with progress."""
