"""The journal on SQLite, the default: one file, one writer thread, readers beside it."""
