"""The page about schedules says what the reader of the file takes."""

import re
from pathlib import Path

from rucher.surfaces.schedules.parse import KEYS, Around, parse

PAGE = (Path(__file__).parents[4] / "docs" / "schedules.md").read_text("utf-8")
KNOWN = frozenset({"agent:scribe", "surface:cli"})


def test_every_example_of_the_page_is_taken() -> None:
    examples = re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL)
    assert examples
    for text in examples:
        assert parse(text, "the page", Around(KNOWN, "UTC", lambda _: False)).schedules


def test_the_page_names_every_key_and_no_other() -> None:
    table = PAGE.partition("## Keys\n")[2].partition("\n\nA field")[0]
    told = [name for row in table.splitlines()[3:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(told) == sorted(KEYS)
