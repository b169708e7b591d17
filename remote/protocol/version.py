"""The protocol's version; console and host must agree on it before anything else is said."""

PROTOCOL_VERSION = 1
"""Raised when a message changes in a way that an older peer would misread."""
