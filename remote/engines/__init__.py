"""What the inference engines need from us: layer-id numbering, the capture plugin, the CPU stand-in."""
