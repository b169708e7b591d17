"""Texts that fill a screen: laid out from the state, with the theme's colours."""
