"""An instance on disk: where its files lie, how a new one is made, which agents it has. Knows no running daemon."""
