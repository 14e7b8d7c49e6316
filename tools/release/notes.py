"""
The notes of a release.

What comes in: the section of the changelog, names and digests. What goes out: Markdown.

The rule: pure; each command can be pasted, and each link leads to the page as it was in the released commit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

RELATIVE = re.compile(r"\]\((?![a-z]+:|#)")


def text(
    *, version: str, changes: str, image: str, platforms: Mapping[str, str], chart: str, url: str, signed: bool
) -> str:
    """Write the notes; `image` and `chart`: name@digest; `platforms`: platform -> digest; `url`: of the repository."""
    linked = RELATIVE.sub(f"]({url}/blob/v{version}/", changes)
    return "\n".join(
        [
            "# gpusteward " + version,
            "",
            linked,
            "",
            *_install(image, platforms, chart),
            *_verify(image, platforms, chart, signed),
        ]
    )


def _install(image: str, platforms: Mapping[str, str], chart: str) -> list[str]:
    return [
        "## Install",
        "",
        "```sh",
        "kubectl create namespace gpusteward",
        "kubectl label namespace gpusteward pod-security.kubernetes.io/enforce=privileged",
        f"helm install gpusteward oci://{chart} -n gpusteward",
        "```",
        "",
        f"The chart runs the image `{image}`:",
        "",
        *(f"- linux/{platform}: `{digest}`" for platform, digest in platforms.items()),
        "",
    ]


def _verify(image: str, platforms: Mapping[str, str], chart: str, signed: bool) -> list[str]:  # noqa: FBT001
    sums = ["```sh", "sha256sum --check SHA256SUMS", "```", ""]
    if not signed:
        return ["## Verify", "", "This release has no signatures.", "", *sums]
    flags, name = "--key cosign.pub --insecure-ignore-tlog", image.partition("@")[0]
    return [
        "## Verify",
        "",
        "The key is in `cosign.pub`; compare it with the one of the repository. No signature is in a public log. So",
        "cosign warns that the log is skipped, and perhaps that it cannot reach TUF: neither matters with a key.",
        "",
        "```sh",
        f"cosign verify {flags} {image}",
        f"cosign verify {flags} {chart}",
        *(f"cosign verify-attestation {flags} --type slsaprovenance1 {one}" for one in (image, chart)),
        *(f"cosign verify-attestation {flags} --type cyclonedx {name}@{one}" for one in platforms.values()),
        f"cosign verify-blob {flags} --signature SHA256SUMS.sig SHA256SUMS",
        *sums[1:],
    ]
