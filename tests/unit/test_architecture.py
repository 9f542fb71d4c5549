"""Rules of the house that the import contracts cannot state."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts import does_io

ROOT = Path(__file__).parents[2]
OURS = ("agent", "allocator", "webhook", "console", "certs", "kube", "demo", "manifests")
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
PARAMETER = re.compile(r"(?<!\*)\*([a-z_]+)\*(?!\*)")
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
        "hmac",
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
        "sys",  # intern
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

    assert {"agent", "allocator", "webhook", "console", "certs", "kube", "demo", "vgpu.py"} <= set(
        shipped
    )
    assert not {"tests", "benchmarks"} & set(shipped)


def product() -> Iterator[Path]:
    """Yield the modules of the product, but for generated ones."""
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.name.endswith(("__init__.py", "_pb2.py")):
                yield path


def has_test_of_its_name(path: Path) -> bool:
    folder = path.parent.relative_to(ROOT)
    return any(
        test.stem == f"test_{path.stem}" or test.stem.startswith(f"test_{path.stem}__")
        for tier in ("unit", "integration")
        for test in (ROOT / "tests" / tier / folder).glob("test_*.py")
    )


def test_every_module_says_where_it_is_tested() -> None:
    """By the name of a test file, or by a line in ``tests/tested_by.toml``, and never by both."""
    listed = tomllib.loads((ROOT / "tests/tested_by.toml").read_text())["tested_by"]
    unnamed = {module_of(path) for path in product() if not has_test_of_its_name(path)}

    assert set(listed) == unnamed
    assert [module for module, tests in listed.items() if not tests] == []
    missing = [test for tests in listed.values() for test in tests if not (ROOT / test).is_file()]
    assert missing == []


# Participles that do not end in -ed. Verbs that are spelled like one (read, put, set) are not here.
PARTICIPLES = frozenset(
    [
        "begun",
        "bound",
        "brought",
        "built",
        "caught",
        "chosen",
        "done",
        "drawn",
        "driven",
        "found",
        "given",
        "gone",
        "held",
        "hidden",
        "kept",
        "known",
        "left",
        "lost",
        "made",
        "meant",
        "met",
        "said",
        "seen",
        "sent",
        "shown",
        "spoken",
        "stood",
        "taken",
        "thought",
        "told",
        "understood",
        "woken",
        "written",
    ]
)
NOUNS = frozenset(["seed", "need", "feed", "speed", "bed"])


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function of the product."""
    for path in product():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return word in PARTICIPLES or (word.isalpha() and word.endswith("ed") and word not in NOUNS)


def test_functions_are_named_by_a_noun_or_a_verb() -> None:
    """A participle says neither what is returned nor what is done. Properties may be adjectives."""
    named = [f"{path.relative_to(ROOT)}: {node.name}" for path, node in functions()]
    bare = [each for each in named if is_participle(each.rpartition(" ")[2])]

    assert len(bare) < 0.02 * len(named), bare


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    plain = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    rest = (arguments.vararg, arguments.kwarg)
    return {argument.arg for argument in (*plain, *rest) if argument is not None}


def test_docstrings_name_parameters_that_exist() -> None:
    """A name in asterisks is a parameter; one that was renamed leads nowhere."""
    stale = [
        f"{module_of(path)}.{function.name}: {name}"
        for path, function in functions()
        for name in PARAMETER.findall(ast.get_docstring(function) or "")
        if name not in parameters(function)
    ]

    assert stale == []


def test_functions_are_short() -> None:
    """Most fit a glance, and none hides a second one."""
    lengths = sorted((node.end_lineno or node.lineno) - node.lineno + 1 for _, node in functions())

    assert lengths[len(lengths) // 2] <= 10
    assert lengths[len(lengths) * 99 // 100] <= 40
