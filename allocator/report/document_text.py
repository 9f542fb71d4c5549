"""A document that scripts read, as JSON or YAML."""

from typing import Any

import orjson
import yaml as yaml_format


def document_text(content: dict[str, Any], *, yaml: bool) -> str:
    """Return *content* as indented JSON, or as YAML; without a line break at the end."""
    if yaml:
        plain = orjson.loads(orjson.dumps(content))  # YAML knows no enums, and tags tuples
        text = yaml_format.safe_dump(plain, sort_keys=False, allow_unicode=True)
        return text.rstrip("\n")
    return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
