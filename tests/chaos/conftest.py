"""Lets the checks that chaos tests share say what they found when they fail."""

import pytest

pytest.register_assert_rewrite("tests.chaos.crew")
