"""The client: credentials really sent, errors under one name, watches cut into lines."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from cluster.certificates import Authority
from exporter.base.clock import SystemClock
from exporter.kube import client as module
from exporter.kube.client import Client, segment
from exporter.kube.credentials import from_kubeconfig, in_cluster
from exporter.kube.errors import KubeError
from sources.kube_api import Server, kubeconfig, refusal, serving


class Minutes(SystemClock):
    """A clock that can be set forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


Write = Callable[[web.StreamResponse], Awaitable[None]]


async def ok(_: web.Request) -> web.StreamResponse:
    return web.json_response({})


def only(token: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Answer those who show this token."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization", "").lower() != f"bearer {token}":
            return refusal(401, "Unauthorized")
        return web.json_response({})

    return answer


@asynccontextmanager
async def asking(server: Server, folder: Path, *, deadline: float = 5.0) -> AsyncIterator[Client]:
    """A client with a kubeconfig without credentials."""
    config = kubeconfig(folder / "config", server.url)
    client = Client(from_kubeconfig(config), clock=SystemClock(), deadline=deadline)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def serving_tls(authority: Authority) -> ssl.SSLContext:
    pair = authority.issue("server", "kube-apiserver", hosts=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def service_account(folder: Path, authority: Authority, token: str) -> Path:
    """A folder as the kubelet mounts it into a pod."""
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_text(authority.certificate.read_text())
    return folder


def environment(server: Server) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": server.url.rpartition(":")[2]}


async def test_in_a_pod_every_request_carries_the_token(tmp_path: Path, authority: Authority) -> None:
    """In-cluster requests are never anonymous (36.0.0 of the library sent them so): get and watch carry the token."""
    async with serving(ok, context=serving_tls(authority)) as server:
        folder = service_account(tmp_path / "sa", authority, "first")
        client = Client(in_cluster(folder, environment(server)), clock=SystemClock())
        await client.get("/api")
        async with client.watch("/api/v1/pods", {}, seconds=5, idle=5.0):
            pass
        await client.close()
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer first"] * 2


@pytest.mark.fault(21)
async def test_a_rotated_token_is_sent_within_a_minute(tmp_path: Path, authority: Authority) -> None:
    """The kubelet writes a new token into the file: a minute later at the latest it is the one that is sent."""
    clock = Minutes()
    async with serving(ok, context=serving_tls(authority)) as server:
        folder = service_account(tmp_path / "sa", authority, "first")
        client = Client(in_cluster(folder, environment(server)), clock=clock)
        await client.get("/api")
        (folder / "token").write_text("second")
        clock.ahead = 61.0
        await client.get("/api")
        await client.close()
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer first", "Bearer second"]


@pytest.mark.fault(21)
async def test_a_refused_token_is_replaced_at_once(tmp_path: Path, authority: Authority) -> None:
    """When the server refuses the token and the file has another by now, the answer comes as if nothing had been."""
    valid = "first"

    async def answer(request: web.Request) -> web.StreamResponse:
        return await only(valid)(request)

    async with serving(answer, context=serving_tls(authority)) as server:
        folder = service_account(tmp_path / "sa", authority, valid)
        client = Client(in_cluster(folder, environment(server)), clock=SystemClock())
        assert await client.get("/api") == b"{}"
        valid = "second"
        (folder / "token").write_text(valid)
        assert await client.get("/api") == b"{}"
        await client.close()
    sent = [seen.headers["Authorization"] for seen in server.seen]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_token_file_of_a_kubeconfig_is_read_anew(tmp_path: Path) -> None:
    """A kubeconfig's tokenFile rotates too, also one that ends in a line feed; a refused token is replaced at once."""
    token = tmp_path / "token"
    token.write_text("first\n")
    async with serving(only("second")) as server:
        config = kubeconfig(tmp_path / "config", server.url, user={"tokenFile": str(token)})
        client = Client(from_kubeconfig(config), clock=SystemClock())
        with pytest.raises(KubeError) as caught:
            await client.get("/api")
        token.write_text("second\n")
        assert await client.get("/api") == b"{}"
        await client.close()
    assert (caught.value.status, caught.value.reason) == (401, "Unauthorized")
    sent = [seen.headers["Authorization"] for seen in server.seen]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"], "one try each, and one more with the new token"


async def test_credentials_that_cannot_be_read_now_are_used_on(tmp_path: Path, authority: Authority) -> None:
    """A token file that is gone for a moment takes nothing: the last token is sent, and the server decides."""
    clock = Minutes()
    async with serving(only("first"), context=serving_tls(authority)) as server:
        folder = service_account(tmp_path / "sa", authority, "first")
        client = Client(in_cluster(folder, environment(server)), clock=clock)
        await client.get("/api")
        (folder / "token").unlink()
        clock.ahead = 61.0
        assert await client.get("/api") == b"{}"
        await client.close()


@pytest.mark.parametrize("written", ["", "\n"])
@pytest.mark.parametrize("where", ["in a pod", "kubeconfig"])
async def test_a_token_that_is_just_being_written_takes_nothing(
    tmp_path: Path, authority: Authority, where: str, written: str
) -> None:
    """An empty token file is logged, and the last token stays in use. The new one is used within seconds."""
    clock, valid = Minutes(), "first"

    async def answer(request: web.Request) -> web.StreamResponse:
        return await only(valid)(request)

    async with serving(answer, context=serving_tls(authority)) as server:
        folder = service_account(tmp_path / "sa", authority, valid)
        config = kubeconfig(
            tmp_path / "config", server.url, user={"tokenFile": str(folder / "token")}, authority=folder / "ca.crt"
        )
        credentials = in_cluster(folder, environment(server)) if where == "in a pod" else from_kubeconfig(config)
        client = Client(credentials, clock=clock)
        await client.get("/api")
        (folder / "token").write_text(written)
        clock.ahead = 61.0
        with capture_logs() as logs:
            assert await client.get("/api") == b"{}"
            clock.ahead += 6.0
            assert await client.get("/api") == b"{}"
        assert [(entry["event"], entry["log_level"]) for entry in logs] == [("kube.credentials_unreadable", "warning")]
        (folder / "token").write_text("second")
        clock.ahead += 6.0
        valid = "second"
        assert await client.get("/api") == b"{}"
        await client.close()
    sent = [seen.headers["Authorization"].lower() for seen in server.seen]
    assert sent == ["bearer first"] * 3 + ["bearer second"], "no request is refused, and none is anonymous"


async def test_a_replaced_authority_is_trusted_after_one_failure(tmp_path: Path, authority: Authority) -> None:
    """No request goes to a server whose certificate has an unknown authority. After a failure `ca.crt` is read anew."""
    other = Authority(tmp_path / "other")
    async with serving(ok, context=serving_tls(authority)) as server:
        folder = service_account(tmp_path / "sa", other, "first")
        client = Client(in_cluster(folder, environment(server)), clock=SystemClock())
        with pytest.raises(KubeError) as caught:
            await client.get("/api")
        assert server.seen == []
        service_account(folder, authority, "first")
        assert await client.get("/api") == b"{}"
        await client.close()
    assert caught.value.reason == "Untrusted"


async def test_an_authority_from_before_kubernetes_1_17_is_trusted(
    tmp_path: Path, authority: Authority, strict_tls: None
) -> None:
    """Its certificates have no Authority Key Identifier, which Python's ssl demands by default from 3.13 on."""
    async with serving(ok, context=serving_tls(authority)) as server:
        folder = service_account(tmp_path / "sa", authority, "first")
        client = Client(in_cluster(folder, environment(server)), clock=SystemClock())
        assert await client.get("/api") == b"{}"
        await client.close()


@pytest.fixture
def strict_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each new context have the default of Python 3.13, in an older one too."""
    make = ssl.create_default_context

    def strict(*words: Any, **more: Any) -> ssl.SSLContext:
        context = make(*words, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.mark.parametrize("content", ["", "{", "[]", "apiVersion: v1\n", "clusters: 7\ncontexts: []\n"])
async def test_a_kubeconfig_that_is_none_is_one_error(tmp_path: Path, content: str) -> None:
    """Whatever is wrong with a kubeconfig, the error says which file."""
    file = tmp_path / "config"
    file.write_text(content)
    client = Client(from_kubeconfig(str(file)), clock=SystemClock())
    with pytest.raises(KubeError, match=r"NotConfigured: .*/config"):
        await client.get("/api")


async def test_outside_of_a_pod_the_error_says_what_is_needed(tmp_path: Path) -> None:
    """Without the environment of a pod, or without its files, the error speaks of a kubeconfig."""
    for known in ({}, {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}):
        client = Client(in_cluster(tmp_path, known), clock=SystemClock())
        with pytest.raises(KubeError, match=r"NotConfigured: .* a kubeconfig is needed"):
            await client.get("/api")


@pytest.mark.parametrize("lacking", ["KUBERNETES_SERVICE_HOST", "token", "ca.crt"])
async def test_in_a_pod_each_part_is_needed(tmp_path: Path, authority: Authority, lacking: str) -> None:
    """An empty part is as good as none, and never means another: without `ca.crt` the system's are not trusted."""
    folder = service_account(tmp_path / "sa", authority, "first")
    known = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    if lacking in known:
        known[lacking] = ""
    else:
        (folder / lacking).write_text("\n")
    client = Client(in_cluster(folder, known), clock=SystemClock())
    with pytest.raises(KubeError, match="NotConfigured"):
        await client.get("/api")


async def test_the_server_of_a_pod_may_have_an_ipv6_address(tmp_path: Path, authority: Authority) -> None:
    """The kubelet writes the address without brackets; a URL needs them."""
    folder = service_account(tmp_path / "sa", authority, "first")
    known = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert (await in_cluster(folder, known)()).server == "https://[fd00::1]:443"


async def test_a_kubeconfig_may_name_a_certificate_and_another_server(tmp_path: Path, authority: Authority) -> None:
    """The client's own certificate is shown, and `tls-server-name` is the name that the server must prove."""
    ours = authority.issue("client", "anna")
    pair = authority.issue("named", "kube-apiserver", hosts=["api.example"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # from 3.13 on, it demands an Authority Key Identifier
    context.load_cert_chain(pair.certificate, pair.key)
    user = {"client-certificate": str(ours.certificate), "client-key": str(ours.key)}
    async with serving(ok, context=context) as server:
        file = kubeconfig(tmp_path / "config", server.url, user=user, authority=authority.certificate)
        client = Client(from_kubeconfig(file), clock=SystemClock())
        with pytest.raises(KubeError, match="Untrusted"):
            await client.get("/api")
        amend(Path(file), {"tls-server-name": "api.example"})
        assert await client.get("/api") == b"{}"
        await client.close()
    assert [seen.headers.get("Authorization") for seen in server.seen] == [None]


async def test_a_kubeconfig_may_forgo_the_proof(tmp_path: Path, authority: Authority) -> None:
    """With `insecure-skip-tls-verify`, a server whose authority is unknown is asked all the same."""
    async with serving(ok, context=serving_tls(authority)) as server:
        file = kubeconfig(tmp_path / "config", server.url)
        client = Client(from_kubeconfig(file), clock=SystemClock())
        with pytest.raises(KubeError, match="Untrusted"):
            await client.get("/api")
        amend(Path(file), {"insecure-skip-tls-verify": True})
        assert await client.get("/api") == b"{}"
        await client.close()


async def test_a_kubeconfig_may_name_a_proxy(tmp_path: Path) -> None:
    """Requests go to `proxy-url`, which gets the whole address."""
    async with serving(ok) as proxy:
        file = kubeconfig(tmp_path / "config", "http://api.example")
        amend(Path(file), {"proxy-url": proxy.url})
        client = Client(from_kubeconfig(file), clock=SystemClock())
        assert await client.get("/api") == b"{}"
        await client.close()
    assert [seen.headers["Host"] for seen in proxy.seen] == ["api.example"]


def amend(file: Path, cluster: dict[str, object]) -> None:
    """Add to the cluster of a kubeconfig."""
    content = json.loads(file.read_text())
    content["clusters"][0]["cluster"] |= cluster
    file.write_text(json.dumps(content))


async def test_a_refusal_tells_what_the_server_said(tmp_path: Path) -> None:
    """Status, reason, message, causes and Retry-After come from the Status object and its headers."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return refusal(429, "TooManyRequests", causes=("Busy",), retry_after=7)

    async with serving(answer) as server, asking(server, tmp_path) as client:
        with pytest.raises(KubeError) as caught:
            await client.get("/api")
    error = caught.value
    assert (error.status, error.reason, error.message) == (429, "TooManyRequests", "no")
    assert (error.retry_after, error.causes) == (7.0, ["Busy"])


async def test_a_refusal_of_a_proxy_is_read_too(tmp_path: Path) -> None:
    """An answer that is no Status object is reported by its code, its HTTP reason and the begin of its text."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=504, text="<html>upstream timed out</html>" + 2**20 * "x")

    async with serving(answer) as server, asking(server, tmp_path) as client:
        with pytest.raises(KubeError) as caught:
            await client.get("/api")
    assert (caught.value.status, caught.value.reason) == (504, "Gateway Timeout")
    assert caught.value.message.startswith("<html>upstream timed out</html>")
    assert len(caught.value.message) < 300


async def test_a_server_that_does_not_answer_costs_the_deadline(tmp_path: Path) -> None:
    """A hung server ends in a Timeout, for gets and for watches that never begin."""

    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(answer) as server, asking(server, tmp_path, deadline=0.1) as client:
        with pytest.raises(KubeError) as first:
            await client.get("/api")
        with pytest.raises(KubeError) as second:
            async with client.watch("/api/v1/pods", {}, seconds=60, idle=60.0):
                pass
    assert [(e.value.status, e.value.reason) for e in (first, second)] == [(0, "Timeout")] * 2


async def test_a_body_that_stops_costs_the_deadline(tmp_path: Path) -> None:
    """An answer that begins and does not go on ends in a Timeout, too."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        await asyncio.Event().wait()
        return response

    async with serving(answer) as server, asking(server, tmp_path, deadline=0.2) as client:
        with pytest.raises(KubeError) as caught:
            await client.get("/api")
    assert caught.value.reason == "Timeout"


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    """A refused connection is an error that names the server."""
    async with serving(ok) as server:
        pass
    async with asking(server, tmp_path) as client:
        with pytest.raises(KubeError, match=rf"^Unreachable: {server.url}") as caught:
            await client.get("/api")
    assert caught.value.status == 0


def streaming(*chunks: bytes, then: Write | None = None) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Answer with these chunks, one after the other."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(response)
        return response

    return answer


async def lines_of(client: Client, *, idle: float = 5.0) -> list[bytes]:
    async with client.watch("/api/v1/pods", {"fieldSelector": "spec.nodeName=n"}, seconds=77, idle=idle) as lines:
        return [line async for line in lines]


async def test_a_watch_gives_whole_lines_only(tmp_path: Path) -> None:
    """However the stream is cut into chunks, lines come whole; an unfinished last one is dropped."""
    chunks = b'{"a":', b'1}\n{"b":2}\n{"c"', b":3}\n", b'{"cut'
    async with serving(streaming(*chunks)) as server, asking(server, tmp_path) as client:
        assert await lines_of(client) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    assert server.seen[0].query == {
        "fieldSelector": "spec.nodeName=n",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "77",
    }


async def test_a_watch_takes_lines_of_megabytes(tmp_path: Path) -> None:
    """One event of 3 MB comes through: aiohttp's own line reader stops at 128 kB, the library's at 4 MB."""
    line = b"x" * (5 * 2**20)
    async with serving(streaming(line, b"\nlast\n")) as server, asking(server, tmp_path) as client:
        found = await lines_of(client)
    assert [len(one) for one in found] == [len(line), 4]


async def test_a_line_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: what never comes to a line feed is given up."""
    monkeypatch.setattr(module, "LONGEST_LINE", 1000)
    async with serving(streaming(b"x" * 5000, b"x" * 5000)) as server, asking(server, tmp_path) as client:
        with pytest.raises(KubeError, match="longer than 1000 bytes"):
            await lines_of(client)


async def test_a_watch_that_breaks_off_is_dropped(tmp_path: Path) -> None:
    """A connection that is reset in the middle of a watch is a KubeError like any other."""

    async def cut(response: web.StreamResponse) -> None:
        assert response._req is not None
        transport = response._req.transport
        assert transport is not None
        transport.abort()

    async with serving(streaming(b"one\n", then=cut)) as server, asking(server, tmp_path) as client:
        with pytest.raises(KubeError) as caught:
            await lines_of(client)
    assert caught.value.reason == "Dropped"


@pytest.mark.fault(18)
async def test_a_silent_watch_is_told_apart(tmp_path: Path) -> None:
    """A peer that is gone without a word is noticed: no line within `idle` seconds ends the watch."""

    async def wait(_: web.StreamResponse) -> None:
        await asyncio.Event().wait()

    async with serving(streaming(b"one\n", then=wait)) as server, asking(server, tmp_path) as client:
        with pytest.raises(KubeError) as caught:
            await lines_of(client, idle=0.2)
    assert caught.value.reason == "Silent"


def test_names_cannot_leave_their_place_in_a_path() -> None:
    """An owner reference may hold any text as a name; in a path it stays one segment."""
    assert segment("a/../b?c#d%") == "a%2F..%2Fb%3Fc%23d%25"
