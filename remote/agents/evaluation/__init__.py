"""The evaluation agent: one arm on held-out prompts, greedily, so many at a time; rates, acceptance, and where outputs part."""
