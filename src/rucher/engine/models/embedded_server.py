"""The child process that holds the embedded model's weights, so that a native crash never takes the daemon with it.

Started by `embedded.EmbeddedServer` as a plain script, with one JSON line on stdin: weights, key, context_tokens,
threads, lean. It says one JSON line on stdout, {"url": ...} or {"obstacle": ..., "detail": ...}, then serves until stdin
closes: when the daemon ends, however it ends, so does this. It imports nothing of Rucher and never writes the key anywhere.
"""

import json
import os
import sys
import threading
from typing import Any

_PROMPT_CACHE_MIB = 512
_LOG_WARNINGS = 2


def _serve(config: dict[str, Any]) -> dict[str, str]:
    try:
        import xllamacpp  # noqa: PLC0415 - its absence is an answer that the parent turns into advice
    except ImportError as error:
        return {"obstacle": "runtime", "detail": str(error)}
    params = xllamacpp.CommonParams()
    params.model.path = config["weights"]
    params.n_ctx = config["context_tokens"]
    params.n_parallel = 1
    params.cpuparams.n_threads = config["threads"]
    params.cpuparams_batch.n_threads = config["threads"]
    params.no_extra_bufts = config["lean"]
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [config["key"]]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = _LOG_WARNINGS
    try:
        _KEPT.append(xllamacpp.Server(params))
    except Exception as error:  # noqa: BLE001 - whatever the native side raises, the parent must hear it, not a traceback
        return {"obstacle": "load", "detail": str(error)}
    return {"url": _KEPT[0].listening_address}


_KEPT: list[Any] = []
"""The server lives as long as this refers to it."""


def _leash() -> None:
    sys.stdin.buffer.read()
    # Ending in the ordinary way would wait for the answer being generated, which nobody is left to read.
    os._exit(0)


def main() -> None:
    """Load, say where, serve until stdin closes."""
    config = json.loads(sys.stdin.buffer.readline())
    leash = threading.Thread(target=_leash, daemon=True)
    leash.start()
    said = _serve(config)
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    if "url" in said:
        leash.join()


if __name__ == "__main__":
    main()
