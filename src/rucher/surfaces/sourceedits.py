"""Adds a source to the text of `sources.toml` or takes one out; every other byte stays. Pure. Called by `rucher sources`."""

from collections.abc import Mapping, Sequence

import tomlkit
from tomlkit.exceptions import TOMLKitError

from rucher.protocol.errors import BadInput
from rucher.protocol.tomltext import FileName
from rucher.surfaces.sources import parse_sources

Value = str | Sequence[str]


def with_source(text: str, keys: Mapping[str, Value], path: FileName) -> str:
    """`text` with one more `[[source]]` at its end; raises BadInput when either cannot be used."""
    known = parse_sources(text, path).by_name
    if keys["name"] in known:
        raise BadInput(f"there is a source {keys['name']!r} already; choose another name, or see `rucher sources show`")
    table = tomlkit.dumps({"source": [dict(keys)]})
    parse_sources(table, "the new source")
    newline = "\r\n" if "\r\n" in text else "\n"
    ended = "" if not text or text.endswith("\n") else newline
    grown = text + ended + (newline if text else "") + table.replace("\n", newline)
    try:
        parse_sources(grown, path)
    except BadInput as error:
        raise BadInput(
            f"{path}: sources cannot be added to source = [...]; write each as a [[source]] table"
        ) from error
    return grown


def without_source(text: str, name: str, path: FileName) -> str:
    """`text` without the source of this name; raises BadInput when there is none."""
    known = list(parse_sources(text, path).by_name)
    try:
        document = tomlkit.parse(text)
        tables = document["source"]
        del tables[known.index(name)]
        if len(known) == 1:
            del document["source"]
        return tomlkit.dumps(document)
    except TOMLKitError as error:
        raise BadInput(f"{path}: the source {name} cannot be taken out ({error}); remove its lines by hand") from error
