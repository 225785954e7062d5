"""Channels as two ordinary things: ingress verifies and stamps what comes in, delivery proves what went out.

Stages 1 and 7 of 7 of a message: to journal, and from router. Rules decide which agent or group anything reaches.
"""
