"""All SSH: strict host keys, the session, deployment of `remote/`, and the client of the protocol."""
