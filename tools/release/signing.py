"""
Signatures and attestations, by cosign.

In: a key, as cosign takes it (a file, `env://NAME`, a KMS). Out: signatures beside what they sign. Law: with a key and
without the public transparency log; without a key nothing is signed, and the release says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.release.programs import run

QUIET = ("--tlog-upload=false", "--yes")


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs with one key, in the registry or files."""

    key: str
    plain: bool

    @property
    def _flags(self) -> tuple[str, ...]:
        return (f"--key={self.key}", *QUIET, *(["--allow-http-registry"] if self.plain else []))

    def sign(self, name: str) -> None:
        """Sign what `name@digest` names, and for an image of several platforms each of them. Raises ReleaseError."""
        run("cosign", "sign", "--recursive", *self._flags, name)

    def attest(self, name: str, kind: str, predicate: Path) -> None:
        """Sign a statement about what `name@digest` names. Raises ReleaseError."""
        run("cosign", "attest", f"--type={kind}", f"--predicate={predicate}", *self._flags, name)

    def sign_file(self, file: Path) -> Path:
        """Sign a file; the signature is beside it. Raises ReleaseError."""
        signature = file.with_name(f"{file.name}.sig")
        run("cosign", "sign-blob", f"--key={self.key}", *QUIET, f"--output-signature={signature}", file)
        return signature

    def check(self) -> None:
        """Ask whether the key can be read, with its password. Raises ReleaseError."""
        run("cosign", "public-key", f"--key={self.key}")

    def public_key(self, file: Path) -> None:
        """Write the key by which others verify. Raises ReleaseError."""
        run("cosign", "public-key", f"--key={self.key}", f"--outfile={file}")
