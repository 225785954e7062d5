"""Schedules as a source of events: what `schedules.toml` says, when each is due, and the fires that come of it."""
