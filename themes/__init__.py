"""Themes: one TOML file of colour data each."""
