"""A run of the whole pipeline: its file, its plan, its stages and the runner that carries them out."""
