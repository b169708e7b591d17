"""What can be done with a host: one typed function per operation, for the screen, the command line and MCP alike."""
