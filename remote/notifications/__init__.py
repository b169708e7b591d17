"""Telling people who are not looking: which events, a durable outbox, and a signed webhook."""
