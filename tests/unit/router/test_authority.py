"""Who may order what: every line of the table."""

import pytest

from rucher.router.authority import Wish, refusal

OWNER, ADMIN, MEMBER, NOBODY = {"": "owner"}, {"": "admin"}, {"": "member"}, dict[str, str]()
ADMIN_OF_COOK, OWNER_OF_COOK = {"cook": "admin"}, {"cook": "owner"}
ORDERS = ("grant", "revoke", "block", "unblock", "name user", "name group", "policy", "reset", "restart")


@pytest.mark.parametrize("order", ORDERS)
def test_an_owner_may_order_everything_about_everybody(order: str) -> None:
    for role in ("owner", "admin", "member", ""):
        assert refusal(OWNER, Wish(order, role, theirs=role)) == ""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("roles", [MEMBER, NOBODY, {"": "lord"}], ids=["member", "nobody", "an unknown role"])
def test_members_and_strangers_may_order_nothing(order: str, roles: dict[str, str]) -> None:
    assert refusal(roles, Wish(order, "member")) == "only owners and admins may order this"


@pytest.mark.parametrize(
    ("roles", "wish", "allowed"),
    [
        (ADMIN, Wish("grant", "member"), True),
        (ADMIN, Wish("grant", "member", "cook"), True),
        (ADMIN, Wish("grant", "member", theirs="member"), True),
        (ADMIN, Wish("grant", "admin"), False),
        (ADMIN, Wish("grant", "owner"), False),
        (ADMIN, Wish("grant", "member", theirs="admin"), False),
        (ADMIN, Wish("grant", "member", theirs="owner"), False),
        (ADMIN, Wish("revoke", "member", theirs="member"), True),
        (ADMIN, Wish("revoke", "admin", theirs="admin"), False),
        (ADMIN, Wish("revoke", "owner", theirs="owner"), False),
        (ADMIN, Wish("block"), True),
        (ADMIN, Wish("block", theirs="member"), True),
        (ADMIN, Wish("block", theirs="admin"), False),
        (ADMIN, Wish("block", theirs="owner"), False),
        (ADMIN, Wish("unblock"), True),
        (ADMIN, Wish("name user", theirs="member"), True),
        (ADMIN, Wish("name user", theirs="owner"), False),
        (ADMIN, Wish("name group"), True),
        (ADMIN, Wish("policy"), False),
        (ADMIN, Wish("reset", agent="cook"), False),
        (ADMIN, Wish("restart", agent="cook"), False),
        (ADMIN_OF_COOK, Wish("grant", "member", "cook"), True),
        (ADMIN_OF_COOK, Wish("grant", "member", "scribe"), False),
        (ADMIN_OF_COOK, Wish("grant", "member"), False),
        (ADMIN_OF_COOK, Wish("block"), False),
        (OWNER_OF_COOK, Wish("grant", "admin", "cook"), True),
        (OWNER_OF_COOK, Wish("reset", agent="cook"), True),
        (OWNER_OF_COOK, Wish("reset", agent="scribe"), False),
        (OWNER_OF_COOK, Wish("policy"), False),
    ],
)
def test_an_admin_lets_members_in_and_keeps_strangers_out_and_no_more(
    roles: dict[str, str], wish: Wish, *, allowed: bool
) -> None:
    assert (refusal(roles, wish) == "") is allowed
