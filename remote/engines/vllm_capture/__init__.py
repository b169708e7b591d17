"""On the PYTHONPATH of a vLLM that captures: the connector that `--kv-transfer-config` names."""
