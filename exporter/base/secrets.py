"""
Keeps secrets out of texts that people read.

What comes in: the text of an error or of a log line, which may quote a library, a server or a user. What goes out: the
same text without the values that look like secrets. Pure.

The rule: this is the last net. The code that meets a secret leaves it out of its message; what passes all the same, in
an exception of a library for instance, is cut out here, where errors and log lines are made.
"""

import re

HIDDEN = "***"

_PATTERNS = (
    re.compile(r"(?<=://)[^\s'\"<>]+@"),  # name and password of a URL
    re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL),
    re.compile(r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{53}"),  # bcrypt
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),  # JSON web tokens, such as those of ServiceAccounts
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{16,}"),
    re.compile(r"(?i)(?<=authorization: )\w+ \S+"),
)

_FIXED = re.compile(
    r"exec: process returned -?\d+|exec: (?:missing|malformed|failed)\b[\w ]*|exec: plugin api version"
    r"|Invalid kube-config file|File does not exists|oidc: [\w ,-]+"
)
"""How messages of the Kubernetes library begin. Behind these words it quotes values, and the output of plugins."""


def hidden(text: str) -> str:
    """Cut out what looks like a secret."""
    for pattern in _PATTERNS:
        text = pattern.sub(lambda found: f"{HIDDEN}@" if found[0].endswith("@") else HIDDEN, text)
    return text


def without(text: str, *secrets: str) -> str:
    """Cut out these secrets."""
    for secret in filter(None, secrets):
        text = text.replace(secret, HIDDEN)
    return text


def fixed_part(message: str) -> str:
    """Return the words with which a message of the Kubernetes library begins; empty if they are not known."""
    found = _FIXED.match(message)
    return found[0].strip() if found else ""
