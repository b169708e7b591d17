"""Screens and dialogs: they arrange widgets, show what they are given and return what a person chose."""
