import tomllib

import pytest

from rucher.protocol.positions import positions


@pytest.mark.parametrize(
    "before",
    [
        'a = """\n[[rule]]\n"""',
        'a = """x""\\""""""',
        'a = """quoted at the end"""""',
        "a = '''\n\"\"\" it's\n'''''",
        "a = 'C:\\'",
        'a = "\\\\" # "',
        'a = [ # ]\n "]", # [\n [1, 2,],\n]',
        "a = { b = { c = [1, {d = '}'}] } }",
        "a = 1979-05-27 07:32:00",
        "a = -inf",
        '"a.b" . c = 1',
        "[a]\nb = 1",
        "[[a]]\n[a.b]\n[[a.b.c]]\n[[a.b.c]]\nd = 1",
    ],
)
def test_nothing_that_stands_before_a_key_moves_it(before: str) -> None:
    text = f"{before}\n  [ late ]\n\t here . there = 1"
    tomllib.loads(text)
    lines = before.count("\n") + 3
    place = positions(text)["late", "here", "there"]
    assert (place.line, place.column) == (lines, 10)


def test_a_table_belongs_to_the_last_rule_before_it() -> None:
    where = positions('[[rule]]\nid = 1\n[rule.match]\nx = 1\n[[rule]]\n[rule.match]\n  x = [\n  "a",\n\t"b"]\r\n')
    assert [where["rule", number, "match", "x"].line for number in (0, 1)] == [4, 7]
    assert [(where["rule", 1, "match", "x", at].line, where["rule", 1, "match", "x", at].column) for at in (0, 1)] == [
        (8, 3),
        (9, 2),
    ]
