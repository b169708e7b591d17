"""Where the console keeps its files, and the hosts that it knows."""
