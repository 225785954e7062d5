"""The program inside the sandbox: takes tool calls from inbound.db, acts, and writes results to outbound.db.

Standard library and `rucher.mailbox` only. It decides nothing: what may run was decided before a row was written.
"""
