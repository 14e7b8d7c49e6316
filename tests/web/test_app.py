"""What is answered on which path, and that probes answer what they should."""

import asyncio
import json
import re
import socket
from dataclasses import replace

import aiohttp
import pytest
from multidict import CIMultiDictProxy
from structlog.testing import capture_logs

from builders import device, fault, gpu, memory, snapshot
from exporter.config.values import ListenAddress
from exporter.web.listening import WebError, listen
from serving.node import busy, serving


async def get(url: str, *, method: str = "GET", **headers: str) -> tuple[int, str, CIMultiDictProxy[str]]:
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers


async def test_metrics_are_served_before_the_first_round() -> None:
    """Prometheus finds the daemon's own series at once."""
    async with serving() as (server, _):
        status, text, headers = await get(f"{server.url}/metrics")
    assert status == 200
    assert "gpusteward_build_info" in text
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_metrics_speak_openmetrics_and_gzip() -> None:
    """The scraper's headers reach the page; the client has unpacked it."""
    async with serving(busy()) as (server, _):
        _, text, headers = await get(f"{server.url}/metrics", Accept="application/openmetrics-text")
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert headers["Content-Encoding"] == "gzip"
    assert text.endswith("# EOF\n")


async def test_the_snapshot_is_served_with_its_age() -> None:
    """The document is fresh at each request, although the snapshot is not."""
    async with serving(busy(), age=60.0) as (server, _):
        found = json.loads((await get(f"{server.url}/api/v1/snapshot"))[1])
    assert found["version"] == 1
    assert 60 <= found["age_seconds"] < 90
    assert found["stale"] is True


async def test_without_a_round_there_is_no_snapshot() -> None:
    """503 with a sentence in JSON, so that a client need not guess."""
    async with serving() as (server, _):
        status, text, headers = await get(f"{server.url}/api/v1/snapshot")
    assert (status, text) == (503, '{"error":"no round has ended yet"}')
    assert headers["Content-Type"].startswith("application/json")


async def test_health_asks_whether_the_scheduler_moves() -> None:
    """Incomplete rounds and a silent driver are no reason to be restarted; a scheduler that stands still is."""
    async with serving(snapshot(faults=[fault("driver_hangs")])) as (server, latest):
        loop = asyncio.get_running_loop()
        assert (await get(f"{server.url}/healthz"))[0] == 200, "before the first beat"
        latest.beat = loop.time() - 20
        assert (await get(f"{server.url}/healthz"))[0] == 200
        latest.beat = loop.time() - 41
        status, text, _ = await get(f"{server.url}/healthz")
        assert status == 503
        assert re.search(r"has not moved for 4\d s", text)


async def test_health_is_patient_with_long_intervals() -> None:
    """With a round a minute a scheduler may rest for three of them: one round that takes long is no reason to end."""
    async with serving(snapshot(), interval=60.0) as (server, latest):
        loop = asyncio.get_running_loop()
        for still, status in ((160, 200), (181, 503)):
            latest.beat = loop.time() - still
            assert (await get(f"{server.url}/healthz"))[0] == status


async def test_readiness_tells_what_it_waits_for() -> None:
    """The reason is in words that any client may see: no UUIDs, no paths."""
    incomplete = snapshot(faults=[fault("gpu_lost", "GPU-1"), fault("stale", source="names", incomplete=False)])
    async with serving() as (server, _):
        assert (await get(f"{server.url}/readyz"))[:2] == (503, "no round has ended yet\n")
    async with serving(incomplete) as (server, _):
        assert (await get(f"{server.url}/readyz"))[:2] == (503, "not ready yet: devices: gpu_lost\n")
    async with serving(snapshot(), incomplete) as (server, _):
        assert (await get(f"{server.url}/readyz"))[:2] == (200, "ok\n"), "ready once, ready for good"


async def test_without_the_api_only_metrics_and_probes_stay() -> None:
    """`web.api: false` closes the node page and the API, with an error that a client can read."""
    async with serving(busy(), api=False) as (server, _):
        statuses = {path: (await get(server.url + path))[0] for path in ("/metrics", "/healthz", "/readyz", "/")}
        answers = [await get(server.url + path) for path in ("/api/v1/snapshot", EXPLAIN)]
    assert statuses == {"/metrics": 200, "/healthz": 200, "/readyz": 200, "/": 404}
    assert [answer[:2] for answer in answers] == [(404, '{"error":"not found"}')] * 2


EXPLAIN = "/api/v1/explain?namespace=notebooks&pod=anna"


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/api/v1/snapshot", EXPLAIN])
async def test_head_is_answered_and_writing_is_not(path: str) -> None:
    """HEAD is a GET without its body; there is nothing to write to."""
    async with serving(busy()) as (server, _):
        assert (await get(server.url + path, method="HEAD"))[:2] == (200, "")
        status, _, headers = await get(server.url + path, method="POST")
    assert (status, headers["Allow"]) == (405, "GET,HEAD")


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/api/v1/snapshot", EXPLAIN, "/nothing", "/api/nothing"])
async def test_no_answer_tells_versions_of_its_parts(path: str) -> None:
    """On every answer the `Server` header names gpusteward alone, and headers forbid browsers to sniff and to frame."""
    async with serving(busy()) as (server, _):
        _, _, headers = await get(server.url + path)
    assert headers["Server"] == "gpusteward"
    assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "deny")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"


async def test_answers_follow_the_latest_round() -> None:
    """Nothing is remembered from the round before."""
    async with serving(busy()) as (server, latest):
        newer = replace(snapshot(device(gpu(memory=memory()), attributed=0), round=1235), node="other")
        latest.publish(newer, latest.tally)
        found = json.loads((await get(f"{server.url}/api/v1/snapshot"))[1])
    assert (found["round"], found["node"], len(found["gpus"])) == (1235, "other", 1)


async def test_a_port_in_use_is_said_with_the_remedy() -> None:
    """The operator learns which setting to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(WebError, match=f"cannot listen on {address}: address already in use.*web.listen_address"):
            async with serving(address=address):
                pass


@pytest.mark.parametrize("address", ["192.0.2.1:0", "no-such-host.invalid:0"])
def test_a_foreign_address_is_refused(address: str) -> None:
    """An address of another machine cannot be listened on."""
    with pytest.raises(WebError, match="an address of this machine"):
        listen(ListenAddress(address))


@pytest.mark.parametrize("address", [":0", "[::]:0"])
async def test_without_a_host_both_families_are_served(address: str) -> None:
    """IPv4 and IPv6 reach one socket, so that port 0 is one port."""
    async with serving(address=address) as (server, _):
        port = server.url.rpartition(":")[2]
        assert (await get(f"http://127.0.0.1:{port}/healthz"))[0] == 200
        if socket.has_dualstack_ipv6():
            assert (await get(f"http://[::1]:{port}/healthz"))[0] == 200


async def test_the_port_is_free_again_after_the_end() -> None:
    """A daemon that is restarted finds its port."""
    async with serving() as (server, _):
        address = ListenAddress(server.url.removeprefix("http://"))
    listen(address).close()


async def test_what_is_no_http_fills_no_log() -> None:
    """A port scanner gets its 400, and the operator no traceback."""
    async with serving(busy()) as (server, _):
        with capture_logs() as logs:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
            assert (await reader.readline()).endswith(b"400 Bad Request\r\n")
            writer.close()
    assert {entry["log_level"] for entry in logs} == {"debug"}


async def test_a_bug_of_ours_is_logged_and_told_to_nobody_else() -> None:
    """The client learns that it failed, the log why."""
    async with serving(replace(snapshot(), usages=("a bug",))) as (server, _):  # type: ignore[arg-type]
        with capture_logs() as logs:
            status, text, headers = await get(f"{server.url}/api/v1/snapshot")
    assert (status, headers["Server"]) == (500, "gpusteward")
    assert "Traceback" not in text
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("web.failed", "error")]
    assert logs[0]["exc_info"] is not None
