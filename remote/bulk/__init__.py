"""Artifacts over a connection of their own: one end sends, the other receives; the same code on both machines."""
