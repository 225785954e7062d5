"""Declarations of tools: what a model may call. Their acts live with whoever executes them."""
