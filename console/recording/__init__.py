"""Recordings of a host: what happened on a link, line by line, to be looked at again."""
