"""The two files of a session: inbound.db (the host writes, even seq) and outbound.db (the runner writes, odd seq).

Standard library only: the same code runs on the host and, in a sandbox, beside the runner. docs/mailbox.md is the
protocol for runners written in anything else.
"""
