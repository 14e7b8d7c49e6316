"""A PID namespace for a test: nothing goes in, out come the words that start a command as its PID 1."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def in_new_namespace(*options: str) -> list[str]:
    """`unshare` with these options, as root or in a user namespace; without either it skips, and fails in CI."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = ["unshare", *user, "--pid", "--fork", *options]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        reason = "PID namespaces need root, or unprivileged user namespaces"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return words
