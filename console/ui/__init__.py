"""The screen: Textual widgets that render the state and post what a person wants; nothing here reaches past the operations."""
