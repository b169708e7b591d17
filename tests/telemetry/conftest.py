"""NVML as a scenario file tells it."""

from tests.nvml_standin.nvml_standin import nvml_library, nvml_standin

__all__ = ["nvml_library", "nvml_standin"]
