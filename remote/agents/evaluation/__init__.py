"""The evaluation agent: one arm on held-out prompts, greedily, one at a time; rates, acceptance, and where outputs part."""
