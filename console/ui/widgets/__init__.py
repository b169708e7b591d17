"""Widgets render what they are given and post what a person does."""
