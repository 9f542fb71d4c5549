"""Compiled modules: what mypyc would make behave differently does not stand in them."""

import ast

import pytest

from compiled import HOT, ROOT
from tests.unit.test_architecture import PURE


@pytest.mark.parametrize("name", HOT)
def test_no_class_depends_on_its_keywords(name: str) -> None:
    """Mypyc drops them; ``frozen`` stands on the base of our values too, for which it is said."""
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))

    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.keywords:
            bases = [ast.unparse(base) for base in node.bases]
            assert (bases, [word.arg for word in node.keywords]) == (["Value"], ["frozen"])


def test_the_hot_path_is_pure() -> None:
    """Compiled code takes no stand-in for a class, so what tests replace is not compiled."""
    pure = {str(path.relative_to(ROOT)) for path in PURE}

    assert set(HOT) <= pure
    assert len(set(HOT)) == len(HOT)
