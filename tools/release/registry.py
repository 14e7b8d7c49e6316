"""
The registry that is published to.

What comes in: its name, as `ghcr.io/owner`. What goes out: names of what is in it.

The rule: plain HTTP on the loopback alone, as Docker has it.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from tools.release.programs import ReleaseError

_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
NAME = re.compile(rf"(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?(?:/{_PART})*")
"""A host, and a path as in https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests."""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry, and the path below which this project's images and charts are."""

    name: str

    @property
    def image(self) -> str:
        """Name of the daemon's image, without a tag."""
        return f"{self.name}/gpusteward"

    @property
    def charts(self) -> str:
        """Below it Helm puts each chart under the chart's own name."""
        return f"{self.name}/charts"

    @property
    def chart(self) -> str:
        """Name of the chart, without a tag."""
        return f"{self.charts}/gpusteward"

    @property
    def plain(self) -> bool:
        """Whether it is spoken to without TLS."""
        host = urlsplit(f"//{self.name}").hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def check_name(self) -> None:
        """Check that it is a name, as clients of registries take one. Raises ReleaseError."""
        if not NAME.fullmatch(self.name):
            raise ReleaseError(
                f"REGISTRY={self.name} is no name of a registry.\n"
                "fix: REGISTRY=HOST/PATH without a scheme, the path in lower case, such as ghcr.io/owner."
            )

    def check(self) -> None:
        """Ask whether a registry answers there. Raises ReleaseError."""
        host = self.name.partition("/")[0]
        url = f"http{'' if self.plain else 's'}://{host}/v2/"
        try:
            with urllib.request.urlopen(url, timeout=20):  # noqa: S310 (http or https, see above)
                return
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.UNAUTHORIZED:  # wants a login, which buildah, helm and cosign have or report
                return
            answer = f"HTTP status {error.code}"
        except (OSError, ValueError) as error:
            answer = str(error)
        raise ReleaseError(f"No registry answers at {url}: {answer}.\nfix: correct REGISTRY, or start the registry.")
