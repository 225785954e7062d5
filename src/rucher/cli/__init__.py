"""The `rucher` command: what a person types, and what it prints for people or as JSON. It decides nothing."""
