"""Every message of the console's pages, read from its code and its templates."""

import ast
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, nodes

from console.pages.audit.reasons import MEANINGS

CONSOLE = Path(__file__).parents[2] / "console"
# Where a template of a message is no literal: what is joined, and what each reason means.
UNWRITTEN = {"languages/messages.py", "pages/audit/reasons.py"}


class UnwrittenMessageError(Exception):
    """A message whose template is made while the program runs; no catalogue could have it."""


def written_messages() -> frozenset[str]:
    """Return the English template of each message."""
    found = {str(meaning) for meaning in MEANINGS.values()}
    for file in sorted(CONSOLE.rglob("*.py")):
        found |= set(messages_of_code(file.read_text(encoding="utf-8"), file))
    for file in sorted((CONSOLE / "templates").glob("*.html")):
        found |= set(messages_of_template(file.read_text(encoding="utf-8"), file))
    return frozenset(found - {""})


def messages_of_code(text: str, file: Path) -> Iterator[str]:
    """Yield the templates of the calls of ``message`` in a module."""
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id != "message":
            continue
        match node.args:
            case [ast.Constant(value=str() as template)]:
                yield template
            case _ if not file.as_posix().endswith(tuple(UNWRITTEN)):
                raise UnwrittenMessageError(f"{file}:{node.lineno}")
            case _:  # what it is made from is listed by its own name
                pass


def messages_of_template(text: str, file: Path) -> Iterator[str]:
    """Yield the templates of the calls of ``message`` in a page's template."""
    for call in Environment(autoescape=True).parse(text).find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "message":
            match call.args:
                case [nodes.Const(value=str() as template)]:
                    yield template
                case _:
                    raise UnwrittenMessageError(f"{file}:{call.lineno}")
