"""The journal in PostgreSQL 15 or newer: any number of processes write it, each with group commit, and number events as one."""
