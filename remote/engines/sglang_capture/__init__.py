"""On the PYTHONPATH of an engine that captures: the plugin and the entry point that SGLang finds it by."""
