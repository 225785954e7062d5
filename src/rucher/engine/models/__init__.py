"""Language models behind the port `Model`: `scripted`, `chat` (any compatible endpoint) and `embedded`.

Built by `rucher.daemon`, called by the engine's loop. The adapters do not know each other; what two of them share on
the wire is in `wire`. None retries, none runs a tool, none reads the environment.
"""
