"""Composition root: reads the settings, builds every part, wires the ports, supervises. Nothing below imports it."""
