"""The extraction agent: conversations through a capturing server into the store."""
