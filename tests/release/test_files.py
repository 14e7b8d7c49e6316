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
from tools.release.programs import ReleaseError
from tools.release.registry import Registry
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
