"""A verdict as a page to send to somebody: Markdown and plots."""
