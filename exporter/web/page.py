"""
The node page: one HTML file without external parts, and its Content-Security-Policy.

What comes in: page.html of this package. What goes out: its bytes, and the policy with the hashes of its one style and
its one script.

The rule: no other script or style runs in the page, also if text from Kubernetes got into it as markup.
"""

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodePage:
    """The HTML of the page, and its Content-Security-Policy."""

    body: bytes
    policy: str


@functools.cache
def node_page() -> NodePage:
    """Read the page, once per process."""
    body = Path(__file__).with_name("page.html").read_bytes()
    allowed = {kind.decode(): _source(text) for kind, text in _INLINE.findall(body)}
    policy = (
        "default-src 'none'; "
        f"style-src {allowed['style']}; "
        f"script-src {allowed['script']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return NodePage(body, policy)


def _source(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
