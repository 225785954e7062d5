"""Runs and their steps: what is intended is committed, then acted, then recorded, so that a killed run goes on.

Stage 5 of 7 of a message: beneath the engine. It opens no socket, calls no model and runs no tool; it remembers.
"""
