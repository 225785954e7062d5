import hashlib

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Trust
from rucher.protocol.tomltext import decode
from rucher.router.parse import parse, validate
from tests.unit.router.builders import HEAD, rules

GOOD = 'match = { source = "cli" }\nto = "agent:scribe"'

REFUSALS = {
    "not TOML": (HEAD + "[[rule]\n", "2:7: not valid TOML"),
    "cut short": (HEAD + '[[rule]]\nid = "a', "3:8: not valid TOML"),
    "nested without end": (HEAD + "x = " + "[" * 20_000, "1:1: nested too deeply"),
    "empty, as in the middle of a save": ("", "1:1: there is no default"),
    "default of a wrong type": ("default = 3\n", "1:1: default must be text"),
    "default that is no destination": ('# c\ndefault = "scribe"\n', "2:1: 'scribe' is no destination"),
    "unknown key at the top": (HEAD + "\n  defaults = 1\n", "3:3: unknown key 'defaults'; did you mean default?"),
    "rule that is one table": (HEAD + '[rule]\nid = "a"\n', "2:1: rule must be written as [[rule]] tables"),
    "missing id": (HEAD + f"[[rule]]\n{GOOD}\n", "2:1: this rule has no id"),
    "empty id": (HEAD + f'[[rule]]\nid = ""\n{GOOD}\n', "3:1: '' cannot be a rule's id"),
    "id of the default": (HEAD + f'[[rule]]\nid = "default"\n{GOOD}\n', "3:1: 'default' cannot be a rule's id"),
    "duplicate id": (
        HEAD
        + f'[[rule]]\nid = "a"\n{GOOD}\n[[rule]]\n# again\n id = "a"\nmatch = {{ source = "x" }}\nto = "agent:b"\n',
        "8:2: id 'a' is taken",
    ),
    "missing to": (HEAD + '[[rule]]\nid = "a"\nmatch = { source = "x" }\n', "2:1: this rule sends nowhere"),
    "empty to": (HEAD + '[[rule]]\nid = "a"\nmatch = { source = "x" }\nto = []\n', "5:1: this rule sends nowhere"),
    "bad destination in a list": (
        HEAD + '[[rule]]\nid = "a"\nmatch = { source = "x" }\nto = [\n  "agent:b",\n  "Agent:c",\n]\n',
        "7:3: 'Agent:c' is no destination",
    ),
    "number in a list": (HEAD + '[[rule]]\nid = "a"\nmatch = { source = "x" }\nto = ["agent:b", 3]\n', "5:18: "),
    "missing match": (HEAD + '[[rule]]\nid = "a"\nto = "agent:b"\n', "2:1: this rule matches nothing in particular"),
    "empty match": (HEAD + '[[rule]]\nid = "a"\nmatch = {}\nto = "agent:b"\n', "4:1: this rule matches nothing"),
    "match of a wrong type": (HEAD + '[[rule]]\nid = "a"\nmatch = "x"\nto = "agent:b"\n', "4:1: match must be a table"),
    "unknown key of a rule": (HEAD + f'[[rule]]\nid = "a"\n{GOOD}\ncontinues = true\n', "6:1: unknown key 'continues'"),
    "flag of a wrong type": (
        HEAD + f'[[rule]]\nid = "a"\n{GOOD}\ncontinue = 1\n',
        "6:1: continue must be true or false",
    ),
    "unknown engagement": (
        HEAD + f'[[rule]]\nid = "a"\n{GOOD}\nengage = "mentions"\n',
        "6:1: engage = 'mentions' is none of always, mention, mention-sticky, pattern; did you mean mention",
    ),
    "terms of a wrong type": (HEAD + f'[[rule]]\nid = "a"\n{GOOD}\nsenders = true\n', "6:1: senders must be text"),
    "terms of a rule without an agent": (
        HEAD + '[[rule]]\nid = "a"\nmatch = { source = "x" }\nto = "surface:cli"\nengage = "mention"\n',
        "6:1: engage is about agents, and this rule sends to none",
    ),
    "pattern without its engagement": (
        HEAD + f'[[rule]]\nid = "a"\n{GOOD}\npattern = "x"\n',
        "6:1: pattern has no use here",
    ),
    "engagement without its pattern": (
        HEAD + f'[[rule]]\nid = "a"\n{GOOD}\nengage = "pattern"\n',
        '6:1: engage = "pattern" asks for one',
    ),
    "bad pattern": (
        HEAD + f'[[rule]]\nid = "a"\n{GOOD}\nengage = "pattern"\npattern = "("\n',
        "7:1: pattern = '(' is not a regular expression",
    ),
    "otherwise without a case": (
        HEAD + f'[[rule]]\nid = "a"\n{GOOD}\notherwise = "context"\n',
        "6:1: otherwise has no case",
    ),
    "kind of destination that there is not": (
        HEAD + '[[rule]]\nid = "a"\nmatch = { source = "x" }\nto = "mail:ana"\n',
        "5:1: 'mail:ana' is no destination; write agent:, surface:, webhook:, file: or instance:",
    ),
}

CONDITIONS = {
    "unknown key": ('txt = "x"', "unknown key 'txt'; did you mean text?"),
    "number": ("group = 3", "group must be text in quotes"),
    "empty": ('group = ""', "asks for nothing"),
    "bad expression": ("text = '('", "is not a regular expression"),
    "doubtful expression": ("text = '[[a]'", "is not a regular expression"),
    "huge repeat": ("text = 'a{99999999999999999999}'", "is not a regular expression"),
    "empty part in a subject": ('subject = "ev..cli"', "has an empty part"),
    "> in the middle": ('subject = "ev.>.cli.message"', "so it comes last"),
    "part of a part": ('subject = "ev.*.cl*.message"', "stand for whole parts"),
    "subject without ev": ('subject = "home.cli.message.x"', "fits no event"),
    "subject too short": ('subject = "ev.home.cli"', "fits no event"),
    "the control plane's subject": ('subject = "ev.*.rucher.>"', "never routed"),
    "the control plane as source": ('source = "rucher"', "never routed"),
    "pattern as source": ('source = "cl*"', "compared whole"),
    "star in the middle": ('principal = "user:*:ana"', "at the end"),
    "unknown trust": ('trust = "boss"', "use one of owner, member, agent, partner, tool, public"),
    "trust in capitals": ('trust = "OWNER"', "is not a degree of trust"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_file_line_and_column_in_one_line(case: str) -> None:
    text, expected = REFUSALS[case]
    with pytest.raises(BadInput) as refusal:
        parse(text, "rules.toml")
    assert str(refusal.value).startswith(f"rules.toml:{expected}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("form", ["inline", "table", "dotted"])
@pytest.mark.parametrize("case", CONDITIONS)
def test_a_bad_condition_is_refused_at_its_own_key_however_the_match_is_written(case: str, form: str) -> None:
    condition, expected = CONDITIONS[case]
    lines, place = {
        "inline": ([f'match = {{ type = "t", {condition} }}', 'to = "agent:b"'], "7:23"),
        "table": (['to = "agent:b"', "[rule.match]", 'type = "t"', condition], "10:1"),
        "dotted": (['to = "agent:b"', 'match.type = "t"', f"match.{condition}"], "9:7"),
    }[form]
    text = HEAD + "\n# [[rule]]\n#\n"
    text += "\n".join(["[[rule]]", 'id = "a"', *lines]) + "\n"
    with pytest.raises(BadInput) as refusal:
        parse(text, "rules.toml")
    assert str(refusal.value).startswith(f"rules.toml:{place}: ")
    assert expected in str(refusal.value)


def test_the_first_of_several_problems_is_told_and_the_others_counted() -> None:
    text = HEAD + '[[rule]]\nid = "a"\nmatch = { text = "(", trust = "boss" }\nto = "nowhere"\n'
    with pytest.raises(BadInput, match=r"^rules.toml:4:11: .* \(and 2 more problems\)$"):
        parse(text, "rules.toml")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ('{ source = "cli" }', '{ source = "cli" }'),
        ('{ source = "cli" }', '{ source = "cli", text = "x" }'),
        ('{ subject = "ev.>" }', '{ subject = "ev.*.cli.message" }'),
        ('{ subject = "ev.*.cli.>" }', '{ subject = "ev.home.cli.message" }'),
        ('{ principal = "user:*" }', '{ principal = "user:telegram:*" }'),
        ('{ principal = "user:*" }', '{ principal = "user:ana" }'),
        ('{ group = "*" }', '{ group = "main" }'),
        ('{ trust = "tool" }', '{ trust = "owner" }'),
        ('{ text = "x" }', '{ text = "x", trust = "owner" }'),
        ('{ body = { a = ["x", "y"] } }', '{ body = { a = "y" }, source = "cli" }'),
    ],
)
def test_a_rule_that_can_never_fire_is_refused(earlier: str, later: str) -> None:
    with pytest.raises(BadInput, match=r"^rules.toml:6:1: rule 'late' can never fire: the earlier rule 'early'"):
        rules(f'id = "early"\nmatch = {earlier}\nto = "agent:a"', f'id = "late"\nmatch = {later}\nto = "agent:b"')


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ('{ source = "cli" }\ncontinue = true', '{ source = "cli" }'),
        ('{ source = "cli", text = "x" }', '{ source = "cli" }'),
        ('{ subject = "ev.*.cli.message" }', '{ subject = "ev.>" }'),
        ('{ trust = "owner" }', '{ trust = "tool" }'),
        ('{ group = "main" }', '{ group = "*" }'),
        ('{ subject = "ev.>" }', '{ subject = "ev.>" }\ngenerated = true'),
        ('{ subject = "ev.>" }', '{ subject = "ev.>", principal = "agent:a" }'),
        ('{ subject = "ev.>" }', '{ subject = "ev.>", principal = "agent:*" }'),
    ],
)
def test_a_rule_that_can_fire_is_never_refused_as_unreachable(earlier: str, later: str) -> None:
    found = rules(f'id = "early"\nmatch = {earlier}\nto = "agent:a"', f'id = "late"\nmatch = {later}\nto = "agent:b"')
    assert [rule.id for rule in found.rules] == ["early", "late"]


MENTION = '\nengage = "mention"'


@pytest.mark.parametrize(
    ("earlier", "later", "reachable"),
    [
        ('to = "agent:a"', f'to = "agent:b"{MENTION}', False),
        (f'to = "agent:a"{MENTION}', 'to = "agent:b"', True),
        (f'to = "agent:a"{MENTION}', f'to = "agent:b"{MENTION}', True),
        (f'to = "agent:a"{MENTION}', f'to = "agent:a"{MENTION}', False),
        (f'to = ["agent:a", "agent:b"]{MENTION}', f'to = "agent:a"{MENTION}\nsession = "shared"', False),
        (f'to = "agent:a"{MENTION}', f'to = "agent:a"{MENTION}\notherwise = "context"', True),
        (f'to = ["agent:a", "surface:cli"]{MENTION}', 'to = "agent:b"', False),
        ('to = "agent:a"\nsenders = "known"', 'to = "agent:a"', True),
    ],
)
def test_a_rule_takes_everything_only_if_its_terms_leave_nothing(earlier: str, later: str, reachable: bool) -> None:  # noqa: FBT001 - a table
    tables = [
        f'id = "{name}"\nmatch = {{ group = "g" }}\n{rest}' for name, rest in (("early", earlier), ("late", later))
    ]
    if reachable:
        assert len(rules(*tables).rules) == 2
    else:
        with pytest.raises(BadInput, match="'late' can never fire"):
            rules(*tables)


@pytest.mark.parametrize("kind", ["webhook", "file", "instance"])
def test_every_kind_of_destination_must_exist(kind: str) -> None:
    found = rules(f'id = "a"\nmatch = {{ source = "x" }}\nto = "{kind}:there"')
    validate(found, {"agent:scribe", f"{kind}:there"})
    with pytest.raises(BadInput, match=rf"^rules.toml:5:1: there is no {kind}:there; did you mean {kind}:here"):
        validate(found, {"agent:scribe", f"{kind}:here"})


def test_an_unknown_destination_is_refused_with_the_nearest_names() -> None:
    found = rules('id = "a"\nmatch = { source = "x" }\nto = ["agent:scribe", "agent:librarien"]')
    with pytest.raises(BadInput, match=r"^rules.toml:5:23: there is no agent:librarien; did you mean agent:librarian"):
        validate(found, {"agent:scribe", "agent:librarian", "surface:cli"})


def test_an_unknown_default_is_refused_and_known_names_are_shown() -> None:
    with pytest.raises(BadInput, match=r"^rules.toml:1:1: there is no agent:scribe; known are surface:cli$"):
        validate(rules(), ["surface:cli"])
    with pytest.raises(BadInput, match="none exist yet"):
        validate(rules(), [])


def test_a_file_says_everything_that_its_rules_have() -> None:
    found = rules(
        'id = "a"\nto = ["agent:x", "surface:cli", "agent:x"]\ncontinue = true\ngenerated = true\n'
        'match = { trust = "member", subject = "ev.>", text = "(?i)x" }'
    )
    (rule,) = found.rules
    assert (rule.id, rule.to, rule.goes_on, rule.generated) == ("a", ("agent:x", "surface:cli"), True, True)
    assert [(one.key, one.wanted) for one in rule.match] == [
        ("subject", "ev.>"),
        ("trust", Trust.MEMBER.word),
        ("text", "(?i)x"),
    ]


def test_the_version_is_the_hash_of_the_bytes() -> None:
    assert rules().version == hashlib.sha256(HEAD.encode()).hexdigest()
    assert rules().short_version == rules().version[:12]
    assert rules(head=HEAD + "# changed\n").version != rules().version


def test_bytes_that_are_not_utf8_are_refused_at_their_place() -> None:
    with pytest.raises(BadInput, match=r"^rules.toml:2:4: byte 0xff is not UTF-8"):
        decode(b'default = "agent:a"\n# \xc3\xa9\xff', "rules.toml")
    with pytest.raises(BadInput, match=r"^rules.toml:1:1: the file begins with a byte-order mark"):
        decode(b"\xef\xbb\xbfdefault = 1", "rules.toml")
