"""
The boards for the other label names, `exported_namespace`, `exported_pod` and `exported_container`.

What comes in: a dashboard's JSON for `namespace`, `pod` and `container`. What goes out: the same for the other names.

The rule: uid, variables and links keep their names, so that alerts and bookmarks lead to the same addresses.
"""

from __future__ import annotations

import re
from typing import Any

from exporter.metrics.labels import EXPORTED
from tools.exported import NAME, promql

_PROMQL = frozenset({"expr", "query", "definition"})
_CLICKED = re.compile(rf"(?<=\$\{{__data\.fields\.)({NAME})(?=\}})|(?<=\$\{{__field\.labels\.)({NAME})(?=\}})")
_LEGEND = re.compile(rf"(?<=\{{\{{)({NAME})(?=\}}\}})")


def exported(board: Any, key: str = "") -> Any:
    """Write a board's JSON, or the part of it at `key`, for the other names."""
    if isinstance(board, dict):
        if board.get("id") == "byName":
            return board | {"options": EXPORTED.get(board["options"], board["options"])}
        columns = key == "indexByName"
        return {EXPORTED.get(name, name) if columns else name: exported(part, name) for name, part in board.items()}
    if isinstance(board, list):
        return [exported(part, key) for part in board]
    if not isinstance(board, str):
        return board
    if key in _PROMQL:
        return promql(board)
    return (_CLICKED if key == "url" else _LEGEND).sub(lambda found: EXPORTED[found[0]], board)
