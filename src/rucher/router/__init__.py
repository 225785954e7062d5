"""Decides by `rules.toml` where each event goes, records each decision as a hop, and hands hops to their destinations.

Stage 3 of 7 of a message: from journal, to mailbox and surfaces. It never acts on what an event says.
"""
