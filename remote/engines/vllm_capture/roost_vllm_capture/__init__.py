"""A connector of vLLM 0.32 and 0.33 that writes the hidden states of our own requests to a spool directory.

vLLM's `extract_hidden_states` keeps the states of every position in blocks of its key-value cache, the last of them before the
final norm, and its ExampleHiddenStatesConnector writes them when a request has ended. `connector.py` inherits the bookkeeping and
writes what the extraction reads from every engine: the norm applied, by `roost_capture_spool`, on a CPU as on a GPU.
"""
