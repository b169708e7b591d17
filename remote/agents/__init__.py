"""The kinds of work: each agent has light modules (plans, pure cores) and a `worker.py` that may import torch."""
