"""The real sandboxes of the attacks, for the tests of whatever starts and watches them."""

from tests.escape.conftest import cache_dir, launcher, place

__all__ = ["cache_dir", "launcher", "place"]
