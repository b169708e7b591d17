"""On the PYTHONPATH of an engine without a GPU: the stand-in for `sgl_kernel` and the torchvision mend."""
