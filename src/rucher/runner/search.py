"""The act `search`: lines of the workspace's text files that match, found without an index.

A small model searches as it speaks, with several words: where the whole phrase stands nowhere, the lines that hold the
most of its words are given, and the answer says so.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rucher.runner import beneath
from rucher.runner.results import OUTPUT_BYTES, Acted, Failure, lines_that_fit, shown, shown_name, succeeded

_MATCHES = 200
_LINE_CHARACTERS = 300
_SEARCHED_CHARACTERS = 2000
_FILE_BYTES = 8 * 1024 * 1024
_SNIFF = 8192
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv"})


def search(arguments: Mapping[str, Any], workspace: str, expired: Callable[[], bool]) -> Acted:
    """`path:line: text` of lines matching `pattern` (a regular expression, or else plain text), in any letter case."""
    pattern, path = arguments.get("pattern"), arguments.get("path", ".")
    if not isinstance(pattern, str) or not isinstance(path, str) or not pattern.strip():
        raise Failure("pattern is missing or is not text; give the words to look for")
    names = beneath.parts(path, workspace)
    found, cut = _matching(_lines(workspace, names, expired), _matcher(pattern))
    if found:
        return _answer("", found, cut=cut)
    words = sorted(set(re.findall(r"\w{2,}", pattern.lower())), key=len, reverse=True)
    if len(words) > 1:
        most, found = _with_most_words(_lines(workspace, names, expired), words)
        if found:
            said = f"[no line holds {pattern!r} as a whole; these hold {most} of its {len(words)} words]\n"
            return _answer(said, found[:_MATCHES], cut=len(found) > _MATCHES)
    return succeeded(f"[no line matches {pattern!r}; try one single word, or list_dir and read_file]")


def _matcher(pattern: str) -> Callable[[str], object]:
    try:
        return re.compile(pattern, re.IGNORECASE).search
    except (re.error, OverflowError, RecursionError):
        return re.compile(re.escape(pattern), re.IGNORECASE).search


def _matching(lines: Iterator[tuple[str, str]], matches: Callable[[str], object]) -> tuple[list[str], bool]:
    found: list[str] = []
    for place, line in lines:
        if matches(line):
            if len(found) == _MATCHES:
                return found, True
            found.append(f"{place}{line[:_LINE_CHARACTERS]}")
    return found, False


def _with_most_words(lines: Iterator[tuple[str, str]], words: list[str]) -> tuple[int, list[str]]:
    most = 0
    found: list[str] = []
    for place, line in lines:
        lowered = line.lower()
        held = sum(word in lowered for word in words)
        if held > most:
            most, found = held, []
        if held == most and held:
            found.append(f"{place}{line[:_LINE_CHARACTERS]}")
    return most, found


def _answer(said: str, found: list[str], *, cut: bool) -> Acted:
    fitting = lines_that_fit(found, OUTPUT_BYTES - 500)
    cut = cut or len(fitting) < len(found)
    note = "\n[more lines match and are not shown; search for something rarer, or in one folder]" if cut else ""
    return succeeded(said + "\n".join(fitting) + note, truncated=cut)


def _lines(workspace: str, names: tuple[str, ...], expired: Callable[[], bool]) -> Iterator[tuple[str, str]]:
    for file_names in _files(workspace, names):
        if expired():
            raise Failure("the search took too long; search in one folder, or with shell and grep")
        place = shown_name("/".join(file_names))
        for number, line in enumerate(_text_of(workspace, file_names).split("\n"), 1):
            yield f"{place}:{number}: ", line[:_SEARCHED_CHARACTERS].strip()


def _files(workspace: str, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if names:
        with beneath.folder(workspace, names[:-1]) as parent:
            try:
                if stat.S_ISREG(os.stat(names[-1], dir_fd=parent, follow_symlinks=False).st_mode):
                    yield names
                    return
            except FileNotFoundError as error:
                raise Failure(f"{shown_name('/'.join(names))} does not exist; list_dir shows what does") from error
    with beneath.folder(workspace, names) as descriptor:
        for root, folders, files, _ in os.fwalk(".", dir_fd=descriptor, follow_symlinks=False):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
            inner = tuple(part for part in root.split("/") if part != ".")
            for name in sorted(files):
                yield (*names, *inner, name)


def _text_of(workspace: str, names: tuple[str, ...]) -> str:
    try:
        with beneath.file(workspace, names) as descriptor:
            if os.fstat(descriptor).st_size > _FILE_BYTES or b"\0" in os.pread(descriptor, _SNIFF, 0):
                return ""
            return shown(os.pread(descriptor, _FILE_BYTES, 0))
    except Failure:
        # Links, pipes and files that vanish meanwhile hold no lines to find.
        return ""
