"""The server agent: launches the inference engine, says when it is ready, stops it without leaving anything behind."""
