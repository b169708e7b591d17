"""The directories that go on an engine's PYTHONPATH; nothing in its site-packages is touched."""

from pathlib import Path

SGLANG_CAPTURE = Path(__file__).parent / "sglang_capture"
"""Holds the capture plugin and its entry point."""

VLLM_CAPTURE = Path(__file__).parent / "vllm_capture"
"""Holds the connector that vLLM captures with."""

CAPTURE_SPOOL = Path(__file__).parent / "capture_spool"
"""Holds what the captures of all engines write with."""

SGLANG_CPU = Path(__file__).parent / "sglang_cpu"
"""Holds the stand-in for `sgl_kernel` and the torchvision mend, for launches without a GPU."""
