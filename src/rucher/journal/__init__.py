"""The append-only log of everything that happened, and the views folded from it: one writer, many readers.

Stage 2 of 7 of a message: from surfaces, to router. Nothing here decides; it commits, orders, dedupes and remembers.
"""
