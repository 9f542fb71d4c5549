"""Rules of the house that the import contracts cannot state."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts import does_io

ROOT = Path(__file__).parents[2]
OURS = ("agent", "allocator", "webhook", "console", "certs", "kube", "manifests")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
[CONTRACT] = [c for c in PROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "pure"]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


PURE = [
    path
    for package in CONTRACT["packages"]
    for path in sorted((ROOT / package).rglob("*.py"))
    if not does_io(module_of(path), packages=CONTRACT["io_packages"], words=CONTRACT["io_words"])
]
# What a decision may rest on: values, and libraries that only compute. ``yaml`` and ``orjson``
# parse text that somebody else read; ``cryptography`` is handed its keys and clocks.
COMPUTES = frozenset(
    (
        "base64",
        "bisect",
        "collections",
        "copy",
        "cryptography",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "msgspec",
        "operator",
        "orjson",
        "posixpath",
        "re",
        "string",
        "struct",
        "textwrap",
        "types",
        "typing",
        "weakref",
        "yaml",
        "zlib",
    )
)


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level packages that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_pure_module_imports_only_what_computes(path: Path) -> None:
    """The contracts forbid what is known to do I/O; this allows only what is known not to."""
    assert set(imported(path)) <= COMPUTES | set(OURS) - {"kube", "manifests"}


def test_every_dependency_says_what_it_is_for() -> None:
    """A name without a purpose is a name nobody dares to remove."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    declared = [
        line for line in lines if line.strip().startswith('"') and ("~=" in line or "==" in line)
    ]

    assert declared
    assert [line for line in declared if "#" not in line] == []


def test_lock_files_name_no_registry() -> None:
    """Whoever installs decides where packages come from."""
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()

        assert "://" not in text
        assert "--hash=sha256:" in text


def test_the_wheel_holds_what_runs() -> None:
    """Programs and their packages, and neither tests nor benchmarks."""
    shipped = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]

    assert {"agent", "allocator", "webhook", "console", "certs", "kube", "vgpu.py"} <= set(shipped)
    assert not {"tests", "benchmarks"} & set(shipped)
