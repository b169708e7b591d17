"""The vocabulary agent: the draft-vocabulary mapping, built from the store or copied, always validated."""
