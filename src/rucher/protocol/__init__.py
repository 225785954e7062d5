"""Words everyone speaks: events, ids, traces, trust, errors, conversations and the ports between packages.

Imports nothing of Rucher; every other package but `mailbox` and `runner` may import it.
"""
