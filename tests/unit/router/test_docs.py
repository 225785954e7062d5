import re
from pathlib import Path

import pytest

from rucher.router.conditions import MATCH_KEYS
from rucher.router.generated import ensure_generated
from rucher.router.parse import parse

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_guide_is_a_good_rules_file(example: str) -> None:
    assert parse(example, "rules.toml").rules


def test_the_guide_shows_the_generated_rules_as_they_are_written() -> None:
    head = 'default = "agent:scribe"\n'
    assert ensure_generated(head, ["scribe"], ["cli"]) in EXAMPLES


def test_the_guide_names_every_condition() -> None:
    assert [key for key in MATCH_KEYS if f"| `{key}` |" not in PAGE] == []
