import re
from pathlib import Path

import pytest

from rucher.router.cases import read_cases, try_cases
from rucher.router.conditions import MATCH_KEYS
from rucher.router.engagement import TERMS_KEYS, WORDS
from rucher.router.generated import ensure_generated
from rucher.router.parse import parse

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()
TOML = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [text for text in TOML if "[[case]]" not in text]
CASES = [text for text in TOML if "[[case]]" in text]


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_guide_is_a_good_rules_file(example: str) -> None:
    assert parse(example, "rules.toml").rules


def test_the_guide_shows_the_generated_rules_as_they_are_written() -> None:
    head = 'default = "agent:scribe"\n'
    assert ensure_generated(head, ["scribe"], ["cli"]) in EXAMPLES


def test_the_guide_names_every_condition_and_every_term() -> None:
    assert [key for key in (*MATCH_KEYS, *TERMS_KEYS) if f"| `{key}` |" not in PAGE] == []
    assert [word for words in WORDS.values() for word in words if f"`{word}`" not in PAGE] == []


def test_the_guide_s_cases_are_true_of_the_guide_s_rules() -> None:
    (text,) = CASES
    for case in read_cases(text, "cases.toml", "home"):
        tried = [try_cases([case], parse(example, "rules.toml"))[0] for example in EXAMPLES]
        assert any(result.passed for result in tried), case.name
