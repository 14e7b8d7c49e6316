"""
The notes of a release.

In: the section of the changelog, names and digests. Out: Markdown. Law: pure; each command can be pasted.
"""

from __future__ import annotations


def text(*, version: str, changes: str, image: str, chart: str, signed: bool) -> str:
    """Write the notes; `image` and `chart`: name@digest."""
    return "\n".join(
        ["# gpusteward " + version, "", changes, "", *_install(image, chart), *_verify(image, chart, signed)]
    )


def _install(image: str, chart: str) -> list[str]:
    return [
        "## Install",
        "",
        "```sh",
        "kubectl create namespace gpusteward",
        "kubectl label namespace gpusteward pod-security.kubernetes.io/enforce=privileged",
        f"helm install gpusteward oci://{chart} -n gpusteward",
        "```",
        "",
        f"The chart runs the image `{image}` (linux/amd64, linux/arm64).",
        "",
    ]


def _verify(image: str, chart: str, signed: bool) -> list[str]:  # noqa: FBT001 (named by its only caller)
    sums = ["```sh", "sha256sum --check SHA256SUMS", "```", ""]
    if not signed:
        return ["## Verify", "", "This release has no signatures.", "", *sums]
    flags = "--key cosign.pub --insecure-ignore-tlog"
    return [
        "## Verify",
        "",
        "The key is in `cosign.pub`; compare it with the one that you trust. No signature is in a public log.",
        "",
        "```sh",
        f"cosign verify {flags} {image}",
        f"cosign verify {flags} {chart}",
        f"cosign verify-attestation {flags} --type slsaprovenance1 {image}",
        f"cosign verify-blob {flags} --signature SHA256SUMS.sig SHA256SUMS",
        *sums[1:],
    ]
