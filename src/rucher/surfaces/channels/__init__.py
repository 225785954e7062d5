"""One module a platform: how text becomes visible there, and how to tell whether it already is.

A channel knows the words of protocol and its own platform, and no other channel.
"""
