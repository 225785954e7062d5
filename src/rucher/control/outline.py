"""How a trace is laid out on paper, line by line, and where a large one is cut: pure. Called by the command line.

Nothing here recurses: a chain of agents may be thousands of levels deep. What is cut away is counted, never left out unseen.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rucher.control.trees import Node
from rucher.protocol.errors import BadInput

_WIDEST = 120
"""Characters of branches before a line; of deeper lines the outermost branches are left away."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How much is laid out: so many levels, so many children of one node (the first and the last), so many lines."""

    levels: int = 60
    children: int = 60
    lines: int = 2000


WHOLE = Cut(sys.maxsize, sys.maxsize, sys.maxsize)


@dataclass(frozen=True, slots=True)
class Line:
    """A node with the branch to draw before it, and its level from 0; or `hidden` nodes that are cut away here.

    `beneath` is an event of the node that they hang under, 0 where that is the whole trace.
    """

    branch: str
    level: int
    node: Node | None
    hidden: int = 0
    beneath: int = 0


def walk(roots: Sequence[Node]) -> Iterator[tuple[Node, int, Node | None]]:
    """Every node with its level and its parent, parents first."""
    waiting: list[tuple[Node, int, Node | None]] = [(node, 0, None) for node in reversed(roots)]
    while waiting:
        node, level, parent = waiting.pop()
        yield node, level, parent
        waiting += [(child, level + 1, node) for child in reversed(node.children)]


def subtree(roots: Sequence[Node], seq: int) -> list[Node]:
    """The node that the event with this number is part of; raises BadInput when the trace has no such event."""
    for node, _, _ in walk(roots):
        if seq in node.events:
            return [node]
    raise BadInput(f"event {seq} is not in this trace; `rucher trace ID --json` lists its events")


def laid_out(roots: Sequence[Node], cut: Cut) -> Iterator[Line]:
    """The lines of a drawing, with one line in place of what is cut away at each place."""
    sizes = _sizes(roots)
    total, shown, lines = sum(sizes[id(root)] for root in roots), 0, 0
    waiting = [_Place(line, "") for line in reversed(_children(roots, 0, 0, cut, sizes))]
    while waiting:
        place = waiting.pop()
        line, below = place.line, place.below
        if lines >= cut.lines:
            yield Line("", 0, None, total - shown, 0)
            return
        yield line
        lines, shown = lines + 1, shown + (1 if line.node else line.hidden)
        if line.node is None:
            continue
        beneath = line.node.events[0]
        if line.level + 1 >= cut.levels and line.node.children:
            children = [Line("", line.level + 1, None, sizes[id(line.node)] - 1, beneath)]
        else:
            children = _children(line.node.children, line.level + 1, beneath, cut, sizes)
        waiting += reversed(list(_branched(children, below)))


@dataclass(frozen=True, slots=True)
class _Place:
    line: Line
    below: str
    """What the branches of its children begin with."""


def _children(nodes: Sequence[Node], level: int, beneath: int, cut: Cut, sizes: dict[int, int]) -> list[Line]:
    if len(nodes) <= cut.children:
        return [Line("", level, node) for node in nodes]
    first, last = cut.children - cut.children // 2, cut.children // 2
    middle = nodes[first : len(nodes) - last]
    hidden = Line("", level, None, sum(sizes[id(node)] for node in middle), beneath)
    return [
        *(Line("", level, node) for node in nodes[:first]),
        hidden,
        *(Line("", level, node) for node in nodes[len(nodes) - last :]),
    ]


def _branched(lines: Sequence[Line], below: str) -> Iterator[_Place]:
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        branch = below + ("└─ " if last else "├─ ")
        further = below + ("   " if last else "│  ")
        if len(further) > _WIDEST:
            further = "…  " + further[6:]
        yield _Place(Line(branch, line.level, line.node, line.hidden, line.beneath), further)


def _sizes(roots: Sequence[Node]) -> dict[int, int]:
    """How many nodes each node is with all beneath it, by its identity."""
    order = [node for node, _, _ in walk(roots)]
    sizes: dict[int, int] = {}
    for node in reversed(order):
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in node.children)
    return sizes
