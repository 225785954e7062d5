"""Starts, limits, watches and kills the sandboxes in which agents' tools run. Level 1 so far: bubblewrap on Linux.

Nothing ever runs outside a sandbox because one could not be made: that is Denied.
"""
