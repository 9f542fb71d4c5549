"""A document that scripts read, as JSON or YAML."""

from typing import Any

import orjson
import yaml as yaml_format

from allocator.model.untrusted import plain_json


def document_text(content: dict[str, Any], *, yaml: bool) -> str:
    """Return *content* as indented JSON, or as YAML; without a line break at the end.

    What a terminal would obey is escaped, which changes no value.
    """
    text = orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
    plain = plain_json(text)
    if not yaml:
        return plain
    values = orjson.loads(text)  # YAML knows no enums, and tags tuples
    dumped = yaml_format.safe_dump(values, sort_keys=False, allow_unicode=plain == text)
    return dumped.rstrip("\n")
