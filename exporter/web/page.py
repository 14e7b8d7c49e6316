"""
The node page: one HTML file without external parts, and the policy that allows nothing else to run in it.

What comes in: page.html of this package. What goes out: its bytes, and a Content-Security-Policy with the hashes of its
one style and its one script; so text from Kubernetes that would slip into the page as markup still could not run.
"""

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources

_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodePage:
    """What a browser gets."""

    body: bytes
    policy: str


@functools.cache
def node_page() -> NodePage:
    """Read the page, once."""
    body = (resources.files("exporter.web") / "page.html").read_bytes()
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
