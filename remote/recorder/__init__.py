"""The singleton job that keeps readings of the host: what it reads of the jobs, and its work."""
