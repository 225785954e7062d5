"""A trace as a graph in the DOT language of Graphviz: events, hops, runs and deliveries. Pure. Called by `rucher trace --dot`.

Texts come from outside: they are quoted so that nothing in them is read as DOT, as an escape of a label or as an entity.
Grammar: https://graphviz.org/doc/info/lang.html, escapes of labels: https://graphviz.org/docs/attr-types/escString/.
"""

from collections.abc import Callable, Iterator, Sequence

from rucher.control.outline import walk
from rucher.control.trees import Node

SHAPES = {
    "message": "note",
    "emission": "note",
    "hop": "cds",
    "run": "box",
    "delivery": "parallelogram",
    "note": "plaintext",
}
"""What is drawn, by the kind of node; what hangs under another kind (a step, a wait) is drawn under what that hangs under."""
_COLOURS = {
    "red": ("failed", "uncertain", "dropped", "cancelled", "blocked", "budget_exhausted"),
    "orange": ("waiting", "unfinished", "held", "deferred", "sending"),
    "darkgreen": ("done", "delivered"),
}
_COLOUR_OF = {state: colour for colour, states in _COLOURS.items() for state in states}
_SHOWN_PARTS = 3


def dot(trace_id: str, roots: Sequence[Node], clean: Callable[[str], str]) -> Iterator[str]:
    """The lines of the graph. `clean` makes text printable, as for a terminal."""
    yield f"digraph {_quoted(f'trace {trace_id}')} {{"
    yield "  rankdir=LR;"
    yield '  node [fontname="sans-serif", fontsize=10];'
    names: dict[int, str] = {}
    for node, _, parent in walk(roots):
        above = "" if parent is None else names[id(parent)]
        if node.kind not in SHAPES:
            names[id(node)] = above
            continue
        name = names[id(node)] = f"e{node.events[0]}"
        colour = _COLOUR_OF.get(node.state, "black")
        label = "\n".join(clean(part) for part in node.label[: _SHOWN_PARTS + 1])
        yield f"  {name} [shape={SHAPES[node.kind]}, color={colour}, label={_quoted(label)}];"
        if above:
            yield f"  {above} -> {name};"
    yield "}"


def _quoted(text: str) -> str:
    for char, escape in (("\\", "\\\\"), ('"', '\\"'), ("&", "&amp;"), ("\n", "\\n")):
        text = text.replace(char, escape)
    return f'"{text}"'
