"""The guide to sources says what is true."""

import re
from pathlib import Path

from rucher.surfaces.sources import DEFAULT_BYTES, MOST_BYTES, parse_sources
from rucher.surfaces.verification import MOST_TRUST, Scheme

PAGE = (Path(__file__).parents[3] / "docs" / "sources.md").read_text()


def test_every_example_is_a_good_file() -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert examples
    assert all(parse_sources(example, "sources.toml").by_name for example in examples)


def test_each_scheme_is_named_with_the_most_that_it_vouches_for() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\w+) \|$", PAGE, re.MULTILINE))
    assert {scheme.value: MOST_TRUST[scheme].word for scheme in Scheme}.items() <= rows.items()


def test_the_sizes_are_those_of_the_code() -> None:
    assert f"default {DEFAULT_BYTES}, at most {MOST_BYTES}" in PAGE
