"""The chat-completions wire: what is sent, what comes back, and what its failures mean.

Used by the adapters `chat` and `embedded`. Rendering and reading are pure; only `endpoint` opens a connection.
"""
