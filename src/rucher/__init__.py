"""Rucher: a self-hosted operating system for AI agents."""

__version__ = "0.1.0"
