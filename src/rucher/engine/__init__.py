"""Stage 6 of the story: the loop between a model and its tools. Sees ports only; imports neither kernel nor journal."""
