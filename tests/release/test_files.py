"""Files of a release, names of a registry, provenance. In: small inputs. Out: bytes and words."""

from __future__ import annotations

import shutil
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import plain_yaml
from cluster.processes import free_port
from tools.release import files, provenance
from tools.release.draft import draft
from tools.release.programs import ReleaseError
from tools.release.registry import Registry
from tools.release.signing import Signer
from tools.release.source import CHART, ROOT

DATE = 1_700_000_000


def test_packed_files_are_the_same_each_time(tmp_path: Path) -> None:
    """Whatever the order in which they were found, and dated as the commit."""
    one = files.pack({"a/b": b"1", "a/c": b"2"}, DATE, tmp_path / "one.tar.gz")
    other = files.pack({"a/c": b"2", "a/b": b"1"}, DATE, tmp_path / "other.tar.gz")
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as archive:
        assert [(member.name, member.mtime) for member in archive] == [("a/b", DATE), ("a/c", DATE)]


@pytest.mark.parametrize(
    ("registry", "repository"),
    [
        ("ghcr.io/team", "team/gpusteward"),
        ("127.0.0.1:5000/a/b", "a/b/gpusteward"),
        ("localhost:5000", "gpusteward"),
    ],
)
def test_the_chart_gets_its_image(tmp_path: Path, registry: str, repository: str) -> None:
    """
    The chart has the lines that a release fills in; where they are missing, none is made.

    The registry is a host alone, in whose place global.imageRegistry puts a mirror.
    """
    values, about = (plain_yaml.load((ROOT / CHART / name).read_text()) for name in ("values.yaml", "Chart.yaml"))
    for name in ("values.yaml", "Chart.yaml"):
        shutil.copy(ROOT / CHART / name, tmp_path)
    files.publish(tmp_path, registry, "sha256:1")
    host = registry.partition("/")[0]
    image = {**values["image"], "registry": host, "repository": repository}
    assert plain_yaml.load((tmp_path / "values.yaml").read_text()) == {**values, "image": image}
    annotations = {**about["annotations"], "gpusteward.io/image": f"{host}/{repository}@sha256:1"}
    assert plain_yaml.load((tmp_path / "Chart.yaml").read_text()) == {**about, "annotations": annotations}
    with pytest.raises(ReleaseError, match="has 0 lines"):
        files.publish(tmp_path, registry, "sha256:1")


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("127.0.0.1:5000", True),
        ("localhost:5000/a", True),
        ("[::1]:5000/a", True),
        ("ghcr.io/a", False),
        ("10.0.0.1:5000", False),
    ],
)
def test_only_the_loopback_is_spoken_to_in_plain_http(name: str, plain: bool) -> None:
    """As Docker does it."""
    assert Registry(name).plain is plain


class Answers(BaseHTTPRequestHandler):
    """A server that asks for a login at /v2/, and has nothing else."""

    def do_GET(self) -> None:
        self.send_error(401 if self.path == "/v2/" else 404)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """Its address."""
    with HTTPServer(("127.0.0.1", 0), Answers) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_a_registry_that_wants_a_login_is_one(server: str) -> None:
    """The login itself is what buildah, helm and cosign have."""
    Registry(f"{server}/team").check()


@pytest.mark.parametrize("path", ["", "/team"])
def test_an_unreachable_registry_is_named(path: str) -> None:
    """Before anything is built."""
    with pytest.raises(ReleaseError, match=r"No registry answers at http://127\.0\.0\.1:\d+/v2/: .*(\n|.)*fix: "):
        Registry(f"127.0.0.1:{free_port()}{path}").check()


@pytest.mark.parametrize(
    "name", ["http://127.0.0.1:5000/a", "ghcr.io/Acme", "ghcr.io//a", "ghcr.io/a b", "", "a/", "127.0.0.1:port/a"]
)
def test_what_is_no_name_is_refused_as_such(name: str) -> None:
    """Before anything is asked for; the fix says how a name is written."""
    with pytest.raises(ReleaseError, match="is no name of a registry\\.\nfix: REGISTRY=HOST/PATH without a scheme"):
        Registry(name).check_name()
    for right in ("ghcr.io/acme", "127.0.0.1:5000/a/b_c/d-e", "[::1]:5000/a", "localhost:5000"):
        Registry(right).check_name()


def test_a_key_that_is_not_there_is_named() -> None:
    """A file is looked for before anything is built; what has a scheme is cosign's business."""
    with pytest.raises(ReleaseError, match=r"KEY=nope\.key: there is no such file\.\nfix: "):
        Signer("nope.key", plain=True).check_file()
    Signer("env://KEY", plain=True).check_file()


def test_a_key_that_cosign_cannot_read_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cosign's last line says it: a wrong password, or a variable that is not there."""
    program = tmp_path / "cosign"
    program.write_text("#!/bin/sh\necho 'Error: decrypt: encrypted: decryption failed' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ReleaseError) as refused:
        Signer("cosign.key", plain=True).check()
    assert str(refused.value).splitlines()[:2] == [
        "KEY=cosign.key cannot be read:",
        "Error: decrypt: encrypted: decryption failed",
    ]
    assert "fix: COSIGN_PASSWORD" in str(refused.value)


def test_a_release_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """It appears at the end, and all can read it. A failure leaves nothing, and the next run removes a killed one's."""
    folder = tmp_path / "dist" / "1.2.3"
    (folder.parent / "unfinished-killed" / "files").mkdir(parents=True)
    with pytest.raises(FileNotFoundError), draft(folder) as work:
        (work / "files" / "nothing" / "a").touch()
    assert list(folder.parent.iterdir()) == []
    with draft(folder) as work:
        (work / "files" / "cosign.pub").touch(0o600)
        with pytest.raises(ReleaseError, match=r"Another release is being made in .*\nfix: "), draft(folder):
            pass
        assert (work / "files").exists() and not folder.exists()
    assert [(one.name, one.stat().st_mode & 0o777) for one in folder.iterdir()] == [("cosign.pub", 0o644)]
    assert list(folder.parent.iterdir()) == [folder]


def test_provenance_names_commit_builder_and_dependencies() -> None:
    """Without a builder it says that a person ran it; nothing is claimed that was not given."""
    said = provenance.predicate(
        version="1.2.3",
        registry="r",
        revision="f" * 40,
        url="",
        packages={"requirements.lock": "ab"},
        builder="",
        run="",
    )
    assert said["buildDefinition"]["resolvedDependencies"] == [
        {"uri": "urn:gpusteward:source", "digest": {"gitCommit": "f" * 40}},
        {"name": "requirements.lock", "digest": {"sha256": "ab"}},
    ]
    assert said["runDetails"]["builder"]["id"] == provenance.BY_HAND
