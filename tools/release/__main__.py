"""
`python -m tools.release VERSION --registry R [--key K]`, or `make release`: one commit becomes a release.

What comes in: arguments. What goes out: dist/VERSION, and what is in the registry; exit code 1 and the reason where
that is not possible.

The rule: a folder dist/VERSION is whole, and a version that is published is never written again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.release import images, source
from tools.release.draft import draft
from tools.release.images import Store
from tools.release.making import Making
from tools.release.programs import ReleaseError, run
from tools.release.registry import Registry
from tools.release.signing import Signer


def main() -> int:
    """Make the release; the exit code."""
    try:
        _release(_arguments())
    except ReleaseError as error:
        print(error, file=sys.stderr)  # noqa: T201 (a command line)
        return 1
    return 0


def _release(given: argparse.Namespace) -> None:
    registry = Registry(given.registry.rstrip("/"))
    signer = Signer(given.key, registry.plain) if given.key else None
    checked = _check(given.version, registry, signer)
    if given.check:
        return
    _check_names(registry, checked.version)
    if signer:
        signer.check()
    else:
        _say("no KEY: nothing will be signed")
    folder = checked.root / "dist" / checked.version
    if folder.exists():
        raise ReleaseError(f"{folder} exists.\nfix: move it away.")
    with draft(folder) as work:
        store = Store(given.store or work, checked.date)
        who = (given.source, given.builder, given.invocation)
        Making(checked, registry, signer, work / "files", work, store, _say, *who).make()
    _say(f"released: {checked.version}; its files are in {folder.relative_to(checked.root)}")


def _check(version: str, registry: Registry, signer: Signer | None) -> source.Source:
    """Check what needs neither helm nor cosign, which take minutes to build."""
    registry.check_name()
    if signer:
        signer.check_file()
    checked = source.checked(Path.cwd(), version)
    if problems := images.missing():
        raise ReleaseError("; ".join(problems) + ".\nfix: docs/release.md lists the programs; run it as root.")
    registry.check()
    return checked


def _check_names(registry: Registry, version: str) -> None:
    plain = ["--allow-http-registry"] if registry.plain else []
    name = f"{registry.image}:{version}"
    try:
        run("cosign", "triangulate", *plain, name)  # asks for the digest of the tag
    except ReleaseError as error:
        if any(words in str(error) for words in ("UNAUTHORIZED", "is missing")):  # no login, no cosign
            raise
        return  # no such image, as it should be; some registries say DENIED of a name that they do not know
    raise ReleaseError(f"{name} is published already.\nfix: release another version; a published one is never changed.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("version", help="x.y.z, the version of pyproject.toml")
    parser.add_argument("--registry", required=True, help="where to publish, as ghcr.io/OWNER")
    parser.add_argument(
        "--key", default="", help="cosign's private key: a file, env://NAME or a KMS; without it nothing is signed"
    )
    parser.add_argument(
        "--check", action="store_true", help="only look whether it can be made, without helm and cosign"
    )
    parser.add_argument("--store", type=Path, help="buildah's storage; without it an empty one: packages of the day")
    parser.add_argument("--source", default="", help="address of the repository, for labels and provenance")
    parser.add_argument("--builder", default="", help="URI of the builder, for the provenance")
    parser.add_argument("--invocation", default="", help="which run of the builder, for the provenance")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 (a command line)


if __name__ == "__main__":
    sys.exit(main())
