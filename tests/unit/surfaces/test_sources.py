"""Laws of sources.toml: what it says is stamped, and what cannot be used is refused whole, by line and column."""

from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Trust
from rucher.surfaces.sources import DEFAULT_BYTES, Origin, Pick, Rate, Source, SourcesFile, parse_sources
from rucher.surfaces.verification import Scheme
from tests.fakes.senders import PUBLIC_KEY

HEAD = '[[source]]\nname = "shop"\nscheme = "{}"\n'
SHOP = HEAD.format("bearer")


def only(text: str) -> Source:
    (found,) = parse_sources(text, "sources.toml").by_name.values()
    return found


def test_a_source_is_a_partner_of_its_own_name_unless_it_says_otherwise() -> None:
    assert only(SHOP) == Source(
        name="shop", scheme=Scheme.BEARER, principal="partner:shop", trust=Trust.PARTNER, max_bytes=DEFAULT_BYTES
    )


def test_every_key_is_taken() -> None:
    found = only(
        HEAD.format("ed25519")
        + f'public_key = "{PUBLIC_KEY}"\nprincipal = "owner:ana"\ntrust = "owner"\ngroup = "body:data.room"\nthread = "t1"\n'
        'type = "header:X-Kind"\ntext = "data.summary"\nmax_bytes = 1000\nrate = "90/min"\n'
        'addresses = ["agent:scribe", "group:cli:*"]\n'
    )
    assert (found.principal, found.trust, found.public_keys) == ("owner:ana", Trust.OWNER, (PUBLIC_KEY,))
    assert (found.group, found.thread) == (Pick(Origin.BODY, "data.room"), Pick(Origin.FIXED, "t1"))
    assert (found.type, found.text) == (Pick(Origin.HEADER, "X-Kind"), "data.summary")
    assert (found.max_bytes, found.rate, found.addresses) == (1000, Rate(90, 60), ("agent:scribe", "group:cli:*"))


def test_an_empty_file_has_no_sources_and_its_version_is_that_of_its_bytes() -> None:
    assert not parse_sources("", "sources.toml").by_name
    assert parse_sources(SHOP, "a").version != parse_sources(SHOP + "\n", "a").version


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[source]]\nscheme = "bearer"\n', "1:1: this source has no name"),
        ('[[source]]\nname = "shop"\n', "1:1: this source has no scheme; add scheme = one of standard, github"),
        ('[[source]]\nname = "shop"\nscheme = "hmac"\n', "3:1: 'hmac' is no scheme; known are"),
        ('[[source]]\nname = "shop"\nscheme = "strip"\n', "did you mean stripe?"),
        ('[[source]]\nname = "agent"\nscheme = "bearer"\n', "2:1: 'agent' is the instance's own"),
        ('[[source]]\nname = "rucher"\nscheme = "bearer"\n', "2:1: 'rucher' is the instance's own"),
        ('[[source]]\nname = "my.shop"\nscheme = "bearer"\n', "2:1: 'my.shop' cannot be a name"),
        ('[[source]]\nname = "Shop"\nscheme = "bearer"\n', "cannot be a name"),
        ('[[source]]\nname = "../x"\nscheme = "bearer"\n', "cannot be a name"),
        (SHOP + SHOP, "5:1: name 'shop' is taken by an earlier source"),
        (SHOP + "secret = 'x'\n", "4:1: unknown key 'secret'"),
        (SHOP + 'trust = "owner"\n', "4:1: the scheme bearer vouches for member at most"),
        (HEAD.format("github") + 'trust = "member"\n', "the scheme github vouches for partner at most"),
        (SHOP + 'trust = "boss"\n', "'boss' is no trust; known are"),
        (SHOP + 'principal = "system:timer"\n', "4:1: 'system:timer' cannot be a principal"),
        (SHOP + 'principal = "ana"\n', "cannot be a principal"),
        (SHOP + 'principal = "owner:ana"\ntrust = "member"\n', "4:1: only with trust"),
        (SHOP + 'group = "Main Room"\n', "'Main Room' is no group"),
        (SHOP + 'group = "header:X"\n', "is no group"),
        (SHOP + 'type = "a..b"\n', "'a..b' is no type"),
        (SHOP + 'type = "header:"\n', "is no type"),
        (SHOP + 'text = ""\n', "text names the field"),
        (SHOP + "max_bytes = 0\n", "max_bytes is from 1 to"),
        (SHOP + "max_bytes = 50000000\n", "4:1: max_bytes is from 1 to"),
        (SHOP + 'max_bytes = "1k"\n', "max_bytes must be a whole number"),
        (SHOP + 'rate = "0/min"\n', "is no rate"),
        (SHOP + 'rate = "60/day"\n', "is no rate"),
        (SHOP + f'public_key = "{PUBLIC_KEY}"\n', "public_key belongs to the scheme ed25519"),
        (HEAD.format("ed25519"), 'needs public_key = "whpk_..."'),
        (HEAD.format("ed25519") + 'public_key = "whpk_x"\n', "4:1: this is no Ed25519 public key"),
        (SHOP + 'addresses = ["group:cli"]\n', "'group:cli' is no address"),
        (SHOP + "addresses = [1]\n", "addresses must be text in quotes, or a list"),
        ("name = 1\n", "1:1: unknown key 'name'"),
        ('source = "x"\n', "1:1: source must be written as [[source]] tables"),
        ("[[source]\n", ":1:"),
        ("[[source]]\nname = 1\nscheme = 2\n", "name must be text in quotes (and 1 more problem)"),
    ],
)
def test_what_cannot_be_used_is_refused_by_line_and_column(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_sources(text, "sources.toml")
    assert says in str(refusal.value)
    assert str(refusal.value).startswith("sources.toml:")
    assert "\n" not in str(refusal.value)


def test_without_a_file_there_are_no_sources(tmp_path: Path) -> None:
    assert not SourcesFile(tmp_path / "sources.toml").current.by_name
