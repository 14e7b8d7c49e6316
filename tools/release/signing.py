"""
Signatures and attestations, by cosign.

What comes in: a key, as cosign takes it (a file, `env://NAME`, a KMS). What goes out: signatures beside what they sign.

The rule: with a key and without the public transparency log; without a key nothing is signed, and the release says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.release.programs import ReleaseError, run

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

    def check_file(self) -> None:
        """Check that a key in a file is there. Raises ReleaseError."""
        if "://" not in self.key and not Path(self.key).is_file():
            raise ReleaseError(
                f"KEY={self.key}: there is no such file.\n"
                "fix: name the private key; docs/release.md says how to make one."
            )

    def check(self) -> None:
        """Ask whether the key can be read, with its password. Raises ReleaseError."""
        try:
            run("cosign", "public-key", f"--key={self.key}")
        except ReleaseError as error:
            if "fix: " in str(error):  # there is no cosign
                raise
            raise ReleaseError(
                f"KEY={self.key} cannot be read:\n{str(error).splitlines()[-1]}\n"
                "fix: COSIGN_PASSWORD is the password of this key; env://NAME wants the variable NAME with the key."
            ) from error

    def public_key(self, file: Path) -> None:
        """Write the key by which others verify. Raises ReleaseError."""
        run("cosign", "public-key", f"--key={self.key}", f"--outfile={file}")
