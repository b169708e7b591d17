"""The directories that go on an engine's PYTHONPATH; nothing in its site-packages is touched."""

from pathlib import Path

SGLANG_CAPTURE = Path(__file__).parent / "sglang_capture"
"""Holds the capture plugin and its entry point."""

SGLANG_CPU = Path(__file__).parent / "sglang_cpu"
"""Holds the stand-in for `sgl_kernel` and the torchvision mend, for launches without a GPU."""
