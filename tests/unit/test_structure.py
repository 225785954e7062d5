"""Laws of the tree that no linter states."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "rucher"
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "base", "manager", "managers", "misc", "shared"}
LONGEST_FILE = 400
LONGEST_FUNCTION = 50
LONGEST_TEST = 80
ARCHITECTURE_LINE = re.compile(r"^- `([a-z_/]+)/`: (.+)$", re.MULTILINE)
STREAM_OPENERS = {
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "open_connection",
    "open_unix_connection",
    "start_server",
    "start_unix_server",
}
# Written in parts, so that this file obeys its own law.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb", "debian", "org"),
    )
)
MACHINE_PATH = re.compile(r"(?<![\w.~$}*-])/(?:work|Users|root/\.[a-z]+)/[\w.-]+")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def packages() -> list[Path]:
    return [path.parent for path in modules(SOURCE) if path.name == "__init__.py"]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def first_line(path: Path) -> str:
    return (ast.get_docstring(tree(path)) or "").partition("\n")[0]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """The place and the length in lines, without decorators, of each function of a file."""
    for node in ast.walk(tree(path)):
        if isinstance(node, Function):
            yield (
                f"{path.relative_to(ROOT)}:{node.lineno} {node.name}",
                (node.end_lineno or node.lineno) - node.lineno + 1,
            )


def too_long(folder: Path, limit: int) -> list[str]:
    return [f"{place}: {lines}" for path in modules(folder) for place, lines in functions(path) if lines > limit]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def tracked() -> list[Path]:
    """Every file that is, or is about to be, under version control."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_source_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(SOURCE)}
    assert lengths
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LONGEST_FILE} == {}


def test_no_function_of_the_source_is_longer_than_a_page() -> None:
    assert too_long(SOURCE, LONGEST_FUNCTION) == []


def test_no_test_is_longer_than_two_pages() -> None:
    assert too_long(ROOT / "tests", LONGEST_TEST) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = [path.relative_to(SOURCE) for path in modules(SOURCE)]
    assert [str(name) for name in names if VAGUE_NAMES & {*name.parent.parts, name.stem}] == []


def test_every_package_says_in_one_line_what_it_is() -> None:
    lines = {str(package.relative_to(SOURCE)): first_line(package / "__init__.py") for package in packages()}
    assert [name for name, line in lines.items() if not line.endswith((".", ":"))] == []


def test_every_folder_of_modules_is_a_package() -> None:
    assert sorted({path.parent for path in modules(SOURCE)} - set(packages())) == []


def test_the_architecture_page_names_every_package_in_the_words_of_its_docstring() -> None:
    page = dict(ARCHITECTURE_LINE.findall((ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    written = {str(package.relative_to(SOURCE)): first_line(package / "__init__.py") for package in packages()}
    missing = [name for name in written if name != "." and "/" not in name and name not in page]
    assert missing == []
    assert {name: line for name, line in page.items() if written.get(name) != line} == {}


@pytest.mark.parametrize("package", ["mailbox", "runner"])
def test_what_runs_in_the_sandbox_needs_only_the_standard_library(package: str) -> None:
    allowed = sys.stdlib_module_names | {"rucher"}
    roots = {(path.name, name.partition(".")[0]) for path in modules(SOURCE / package) for name in imported(path)}
    assert roots
    assert sorted((file, name) for file, name in roots if name not in allowed) == []


def test_the_kernel_opens_no_stream() -> None:
    used = {
        f"{path.name}:{node.lineno} {node.attr}"
        for path in modules(SOURCE / "kernel")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in STREAM_OPENERS
    }
    assert used == set()


def test_no_file_names_a_machine_or_a_package_host() -> None:
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="replace")
        hosts = [host for host in REGISTRY_HOSTS if host in text]
        found += [f"{path.relative_to(ROOT)}: {name}" for name in (*hosts, *MACHINE_PATH.findall(text))]
    assert found == []


def test_the_lock_files_pin_every_package_by_hash_and_hold_no_address() -> None:
    for name in ("run", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        entries = re.split(r"(?m)^(?=[\w.-]+==)", text)[1:]
        assert entries, name
        assert [entry.partition(" ")[0] for entry in entries if "--hash=sha256:" not in entry] == []
        assert re.findall(r"://|--find-links|--index-url| @ ", text) == []
