"""Checked artifacts: a directory counts as done when its manifest, written last, says so."""
