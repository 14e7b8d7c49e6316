"""
The registry that is published to.

In: its name, as `ghcr.io/owner`. Out: names of what is in it. Law: plain HTTP on the loopback alone, as Docker has it.
"""

from __future__ import annotations

import ipaddress
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from tools.release.programs import ReleaseError


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
        raise ReleaseError(
            f"No registry answers at {url}: {answer}.\nfix: REGISTRY=HOST/PATH without a scheme, such as ghcr.io/OWNER."
        )
