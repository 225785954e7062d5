"""Subject patterns: `*` stands for one token, a last `>` for one or more, as in NATS (https://docs.nats.io/nats-concepts/subjects)."""

from functools import lru_cache

from rucher.protocol.errors import BadInput

PARTS = 4
"""The fewest parts that a subject has: ev, tenant, source and type."""


@lru_cache(maxsize=4096)
def _tokens(pattern: str) -> tuple[str, ...]:
    tokens = tuple(pattern.split("."))
    if "" in tokens:
        raise BadInput(
            f"subject pattern {pattern!r} has an empty part; write ev.<tenant>.<source>.<type>, * or > for any"
        )
    if ">" in tokens[:-1]:
        raise BadInput(f"subject pattern {pattern!r} has > before its end; > stands for all the rest, so it comes last")
    return tokens


def matches(pattern: str, subject: str) -> bool:
    """Whether `subject` is one that `pattern` stands for; raises BadInput for a pattern that cannot be read."""
    wanted = _tokens(pattern)
    found = subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(found) <= len(wanted):
            return False
        found = found[: len(wanted)]
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))


def readable(pattern: str) -> str:
    """The pattern; raises BadInput for one that cannot be read, or that fits no subject `ev.<tenant>.<source>.<type>`."""
    tokens = _tokens(pattern)
    if any(token not in {"*", ">"} and set(token) & set("*> ") for token in tokens):
        raise BadInput(f"subject pattern {pattern!r}: * and > stand for whole parts, as in ev.*.cli.message")
    if tokens[0] not in {"ev", "*", ">"} or (len(tokens) < PARTS and tokens[-1] != ">"):
        raise BadInput(f"subject pattern {pattern!r} fits no event; subjects are ev.<tenant>.<source>.<type>")
    return pattern
