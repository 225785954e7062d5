"""The local HTTP interface of a running daemon: commands come in here, authenticated; nothing is decided here."""
