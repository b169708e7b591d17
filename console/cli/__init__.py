"""The `roost` command: a module for each group of verbs; results on stdout, narration on stderr, exit codes that stay."""
