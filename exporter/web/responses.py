"""
The answers of the API: JSON, also when they are errors.

What comes in: bytes, or a message. What goes out: responses.
"""

from aiohttp import web

from exporter.api.document import encoded


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with JSON."""
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8", headers=headers)


def refusal(status: int, message: str, headers: dict[str, str] | None = None, **more: object) -> web.Response:
    """Make an error of the API: `{"error": "one sentence"}`, perhaps with more keys."""
    return json_response(encoded({"error": message, **more}), status, headers)
