"""The contract between console and host: frozen structs, one JSON object a line, no I/O."""
