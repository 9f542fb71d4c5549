"""Compiled modules: what mypyc would make behave differently does not stand in them."""

import ast
from pathlib import Path

import pytest

from compiled import HOT, ROOT


@pytest.mark.parametrize("name", HOT)
def test_no_class_depends_on_its_keywords(name: str) -> None:
    """Mypyc drops them; ``frozen`` stands on the base of our values too, for which it is said."""
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))

    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.keywords:
            bases = [ast.unparse(base) for base in node.bases]
            assert (bases, [word.arg for word in node.keywords]) == (["Value"], ["frozen"])


def test_the_hot_path_is_all_core() -> None:
    """Compiled code takes no stand-in for a class, so what tests replace is not compiled."""
    assert all(Path(name).parts[1] == "core" for name in HOT)
    assert len(set(HOT)) == len(HOT)
