"""Pure state of the screen: events in, figures out; no I/O, no widgets."""
