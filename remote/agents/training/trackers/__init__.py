"""Trackers of a training: TensorBoard, Weights & Biases, trackio, each in a process of its own that reads what the job tells."""
