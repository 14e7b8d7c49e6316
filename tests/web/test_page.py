"""The node page: self-contained, closed to what tries to be markup, and drawn by a real browser."""

import asyncio
import base64
import hashlib
import html
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from builders import GIB, device, gpu, leaf, limit, memory, pod, snapshot
from daemon.films import OVER, film
from daemon.running import COMMAND, Daemon
from exporter.model import GpuUuid, Snapshot
from exporter.web.page import node_page
from golden.mixed import mixed
from serving.node import MARKUP, busy, serving
from serving.table import served

LARGEST = 28 * 1024
JSON = {"format": "json"}


def test_the_page_is_small_and_brings_all_it_needs() -> None:
    """No request leaves the node: no foreign address, no file besides our own two."""
    text = node_page().body.decode()
    assert len(node_page().body) < LARGEST
    assert set(re.findall(r"https?://[^'\"\s]*", text)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"(?:src|href)=\"(?!data:)([^\"]*)\"", text)) == {"metrics", "api/v1/snapshot"}


def test_nothing_in_the_page_turns_text_into_markup() -> None:
    """Names from Kubernetes enter as text only."""
    text = node_page().body.decode()
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        'setAttribute("on',
        'style="',
    ):
        assert way not in text


def test_the_policy_allows_this_script_and_style_alone() -> None:
    """The hashes in the policy are those of the one style and the one script; nothing else is allowed to run."""
    page = node_page()
    for kind in ("style", "script"):
        inline = re.findall(rf"<{kind}>(.*?)</{kind}>", page.body.decode(), re.DOTALL)
        assert len(inline) == 1
        digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in page.policy
    assert page.policy.startswith("default-src 'none';")
    assert "unsafe" not in page.policy


async def drawn(folder: Path, *snapshots: Snapshot, age: float = 0.0) -> tuple[str, str]:
    """Let Chromium draw the page of a served node; return the document as it stands then, and the browser's console."""
    async with serving(*snapshots, age=age) as (server, _):
        return await browsed(folder, server.url)


async def browsed(folder: Path, url: str) -> tuple[str, str]:
    browser = shutil.which("chromium")
    if browser is None:
        why = "chromium is missing (Debian's package chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    async with asyncio.timeout(60):
        process = await asyncio.create_subprocess_exec(
            browser,
            *("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"),
            *("--virtual-time-budget=3000", "--enable-logging=stderr", "--dump-dom", f"{url}/"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    return out.decode(), "\n".join(line for line in err.decode().splitlines() if "CONSOLE" in line)


def words(drawing: str) -> str:
    """Take what a person reads out of a document."""
    body = re.sub(r"<(script|style|noscript)>.*?</\1>", "", drawing, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


@pytest.mark.browser
async def test_the_node_is_drawn(tmp_path: Path) -> None:
    """GPUs, instances, containers, unattributed memory and the faults are there in words, not only in colours."""
    drawing, console = await drawn(tmp_path, busy())
    text = words(drawing)
    assert console == ""
    for said in (
        "gpu-node-1 incomplete, ",
        "devices GPU 4 fell off the bus (GPU 4)",
        "names names are remembered ones",
        "GPU 0 NVIDIA H100 80GB HBM3 62.0 GiB of 80.0 GiB · 78 %",
        "time-slicing × 4 busy 93 % SM 71 % 412 W 61 °C throttled: sw_power_cap ECC uncorrected: 2",  # noqa: RUF001
        "row remap failed needs drain_and_reset",
        "MPS × 10",  # noqa: RUF001
        "3g.40gb · instance 2 31.0 GiB of 40.0 GiB · 78 %",
        "ghosts 6.0 GiB",
        "host processes 2.0 GiB",
        "unattributed 3.0 GiB",
        "used, not attributed this round 20.0 GiB",
        "did not answer",
        ": the GPU has fallen off the bus. To do: drain the node and power it off and on",
        ", instance 2: a program read or wrote an address that is not its own. To do: look into the application",
        ": see NVIDIA's catalogue of XIDs.",
        "research/llama-0 / main GPU 0 30.0 GiB 34.0 GiB 55 % 2",
        "notebooks/anna / sidecar GPU 0 3.0 GiB unknown unknown 1",
        "notebooks/idle / main GPU 2 · 1g.10gb · 9 no process",
        "gpusteward-test 1.2.3",
    ):
        assert said in text
    assert re.search(r"XID 987 .* XID 45 .* XID 79 ", text), "the latest first"
    assert "XID 31 × 3 " in text  # noqa: RUF001
    assert "bystander" not in text
    assert 'aria-label="62.0 GiB of 80.0 GiB used: notebooks/anna/main 18.0 GiB, ' in drawing


@pytest.mark.browser
async def test_two_gpus_of_one_number_are_told_apart(tmp_path: Path) -> None:
    """On a node of two vendors both are GPU 0: cards and rows name the vendor, or the UUID of one that is silent."""
    silent = GpuUuid("0000:1a:00.0")
    found = mixed()
    facts = replace(found, gpus_present={**found.gpus_present, silent: 0})
    drawing, console = await drawn(tmp_path, facts)
    text = words(drawing)
    assert console == ""
    for said in (
        "GPU 0 nvidia NVIDIA H100 80GB HBM3 48.0 GiB of 80.0 GiB",
        "GPU 0 amd AMD Instinct MI300X 160.0 GiB of 192.0 GiB",
        f"GPU 0 {silent} {silent} unknown did not answer",
        "team-h/both-0 / main GPU 0 nvidia 32.0 GiB",
        "team-h/both-0 / main GPU 0 amd 128.0 GiB",
    ):
        assert said in text, said


@pytest.mark.browser
async def test_a_name_that_tries_to_be_markup_is_shown_as_text(tmp_path: Path) -> None:
    """A pod may be called anything; no element comes of it, and the browser has nothing to block."""
    drawing, console = await drawn(tmp_path, busy())
    assert html.escape(f"<script>/{MARKUP}", quote=False) in drawing
    assert "<img" not in drawing
    assert drawing.count("<script>") == 1
    assert console == ""


@pytest.mark.browser
async def test_an_old_round_is_marked(tmp_path: Path) -> None:
    """What may be gone must not look alive."""
    drawing, _ = await drawn(tmp_path, busy(), age=400.0)
    assert "stale, 7 min old" in words(drawing)
    assert "The newest round is 7 min old. What is shown may be gone." in words(drawing)
    assert '<main class="old">' in drawing


@pytest.mark.browser
async def test_before_the_first_round_the_page_waits(tmp_path: Path) -> None:
    """The page says what it waits for, and draws nothing that it does not know."""
    drawing, _ = await drawn(tmp_path)
    assert "waiting for the first answer" in words(drawing)
    assert "daemon no round has ended yet" in words(drawing)
    assert '<main hidden="">' in drawing


@pytest.mark.browser
async def test_an_idle_node_says_so(tmp_path: Path) -> None:
    """An empty table would leave one wondering whether the page works."""
    drawing, _ = await drawn(tmp_path, snapshot(device(gpu(memory=memory()), attributed=0)))
    text = words(drawing)
    assert "live, " in text
    assert "1 GPU · 0 containers · 0 of 80.0 GiB used" in text
    assert "No container uses a GPU here, none was handed one." in text
    assert re.search(r'<section class="card table" hidden="">', drawing)


@pytest.mark.browser
async def test_a_limit_is_shown_where_one_is_known(tmp_path: Path) -> None:
    """
    The column is there as soon as one container has a limit. A container above its limit is marked in words.

    The declared share of the compute stands beside the used one.
    """
    facts = described(interval=5.0)
    facts["containers"][0]["compute_limit_ratio"] = 0.5
    facts["containers"][0]["memory_limit_bytes"] = 20 * GIB
    facts["containers"][1]["memory_limit_bytes"] = 20 * GIB

    text, _ = await drawn_from(tmp_path, facts)
    assert '<table class="limited">' in text
    assert "research/llama-0 / main GPU 0 30.0 GiB 34.0 GiB 20.0 GiB exceeded 55 % of 50 % 2" in words(text)
    assert "notebooks/anna / main GPU 0 18.0 GiB unknown 20.0 GiB unknown 1" in words(text)


@pytest.mark.browser
async def test_what_is_wrong_with_a_limit_stands_in_the_row(tmp_path: Path) -> None:
    """Problems of a declaration, and a hook that does not hold, are words in the row of their container."""
    train, idle = pod("llama-0", "research"), pod("idle", "notebooks")
    facts = replace(
        busy(),
        limits=(
            limit(train, leaf(0), 24 * GIB, system="hami-nvidia", enforced_by="hook", bypassed=True),
            limit(idle, leaf(2, 9), problems=("gpusteward annotation x: invalid: <b>",)),
        ),
    )
    drawing, console = await drawn(tmp_path, facts)
    text = words(drawing)
    row = "research/llama-0 / main the hook that should keep it below 24.0 GiB does not GPU 0 30.0 GiB 34.0 GiB"
    assert f"{row} 24.0 GiB exceeded" in text
    assert text.count("the hook that should") == 1
    assert "notebooks/idle / main gpusteward annotation x: invalid: <b> GPU 2" in text
    assert console == ""


async def drawn_from(folder: Path, facts: dict[str, Any]) -> tuple[str, str]:
    """Let Chromium draw the page of a document that was made by hand, over several polls."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=node_page().body, content_type="text/html")

    async def api(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(facts), content_type="application/json")

    app = web.Application()
    app.add_routes([web.get("/", page), web.get("/api/v1/snapshot", api)])
    async with TestServer(app) as server:
        return await browsed(folder, str(server.make_url("")).rstrip("/"))


def described(interval: float) -> dict[str, Any]:
    """Describe the busy node."""
    return dict(json.loads(served(busy(), age=0.0, interval=interval)))


def judged(**policy: Any) -> dict[str, Any]:
    """Describe the busy node, with what a policy says of it."""
    facts = described(interval=1.0)
    nothing = {"mode": "dry-run", "breakers": [], "budget_remaining": {}, "standings": [], "recent": []}
    return {**facts, "policy": {**nothing, **policy}}


def standing(container: dict[str, Any], state: str, **more: Any) -> dict[str, Any]:
    """Describe where a container of the document stands, as docs/api.md says."""
    names = ("namespace", "pod", "pod_uid", "container", "container_id", "uuid", "gpu_instance")
    return {
        **{name: container[name] for name in names},
        **dict.fromkeys(("reason", "why", "next", "over_since", "due_at")),
        "claim": "",
        "state": state,
        "mode": "dry-run",
        "used_bytes": 30 * GIB,
        "limit_bytes": 20 * GIB,
        **more,
    }


@pytest.mark.browser
async def test_the_state_of_each_container_is_a_column(tmp_path: Path) -> None:
    """State, what is left of the grace, and reasons are words; the tooltip says what is next, and why not."""
    facts = judged()
    now, (llama, anna, sidecar, fourth, *_) = facts["taken_at"], facts["containers"]
    facts["policy"]["standings"] = [
        standing(llama, "grace", over_since=now - 300, due_at=now + 90, next="evict"),
        standing(anna, "held", reason="no_consent", why="its namespace does not consent", over_since=now - 600),
        standing({**sidecar, "container": "", "container_id": None}, "ok"),
        standing(fourth, "unjudged", reason="limit_invalid", why="its declared limit cannot be used"),
    ]
    drawing, console = await drawn_from(tmp_path, facts)
    text = words(drawing)
    assert console == ""
    assert 'class="judged"' in drawing
    assert "mode dry-run" in text
    assert "research/llama-0 / main GPU 0 30.0 GiB 34.0 GiB grace 90 s 55 % 2" in text
    assert "notebooks/anna / main GPU 0 18.0 GiB unknown held: no consent unknown 1" in text
    assert "notebooks/anna / sidecar GPU 0 3.0 GiB unknown ok unknown 1" in text, "the limit of the whole pod counts"
    assert "unjudged: limit invalid" in text
    assert (
        "gpusteward began to count this excess 5 min ago. Next: evict, in 90 s at the earliest. Mode dry-run."
        in drawing
    )
    assert "gpusteward began to count this excess 10 min ago. its namespace does not consent. Mode dry-run." in drawing


@pytest.mark.browser
@pytest.mark.parametrize(("victim", "told"), [("llama-0", "evict llama-0"), (None, "evict")])
async def test_the_state_of_a_shared_claim_is_that_of_each_of_its_pods(
    tmp_path: Path, victim: str | None, told: str
) -> None:
    """The tooltip names the pod that the action would hit, which may be another one, if it is known."""
    facts = judged()
    now, (llama, anna, *_) = facts["taken_at"], facts["containers"]
    places = ("namespace", "pod", "pod_uid", "uuid", "gpu_instance")
    shares = {"container": "", "claim": "research/shared", "scope": "claim", "memory_bytes": GIB, "problems": []}
    facts["limits"] += [{**{name: each[name] for name in places}, **shares} for each in (llama, anna)]
    holder = {**llama, "pod": victim, "pod_uid": None, "container": "", "container_id": None}
    facts["policy"]["standings"] = [
        standing(holder, "grace", claim="research/shared", due_at=now + 90, next="evict"),
        standing(holder, "due", claim="research/another"),
    ]
    drawing, console = await drawn_from(tmp_path, facts)
    assert console == ""
    rows = ("research/llama-0 / main", "notebooks/anna / main", "notebooks/anna / sidecar")
    for row in rows:
        assert re.search(rf"{row} GPU 0 [^/]* grace 90 s", words(drawing)), row
    assert drawing.count(f"Next: {told}, in 90 s at the earliest.") == len(rows)


@pytest.mark.browser
async def test_a_bar_shows_how_much_of_the_grace_is_used(tmp_path: Path) -> None:
    """Seconds over the limit of those that lead to an action, and what prevents it; no bar at a level of 0."""
    facts = judged()
    now, (llama, anna, sidecar, *_) = facts["taken_at"], facts["containers"]
    why = {"prevented": "no_consent", "prevented_kind": "chosen", "prevented_why": "its namespace does not consent"}
    facts["policy"]["standings"] = [
        standing(llama, "grace", due_at=now + 90, next="evict", over_seconds=45.2, capacity_seconds=135.0),
        standing(anna, "grace", due_at=now + 90, over_seconds=45.2, capacity_seconds=135.0, **why),
        standing(sidecar, "ok", over_seconds=0.0, capacity_seconds=135.0),
    ]
    drawing, console = await drawn_from(tmp_path, facts)
    text = words(drawing)
    assert console == ""
    assert "grace 90 s 45 of 135 s over its limit" in text
    assert "grace 45 of 135 s over its limit · no action: no consent" in text, "there is no countdown to no action"
    assert "No action follows: its namespace does not consent. Mode dry-run." in drawing
    assert drawing.count('style="width: 33.4') == 2
    assert drawing.count("over its limit") == 3, "the script's own words, and two containers"


@pytest.mark.browser
async def test_without_a_policy_there_is_no_trace_of_one(tmp_path: Path) -> None:
    """The exporter's page has no empty column, no mode and no decisions."""
    drawing, _ = await drawn(tmp_path, busy())
    assert re.search('<span id="mode" class="pill ?" hidden="">', drawing)
    assert re.search(r'<section id="decisions" class="card" hidden="">', drawing)
    assert "judged" not in re.sub(r"<(script|style)>.*?</\1>", "", drawing, flags=re.DOTALL)


@pytest.mark.browser
async def test_recent_decisions_are_listed_once_each(tmp_path: Path) -> None:
    """
    Actions, dry runs and refusals, each with its cause, the newest first.

    One container on two GPUs, refused in the same round for the same reason, makes two lines; polls add none.
    """
    facts = judged()
    now, (llama, _, _, other, *_) = facts["taken_at"], facts["containers"]
    assert (llama["pod"], llama["container"]) == (other["pod"], other["container"])
    why = {"reason": "queued", "why": "another one comes first"}
    facts["policy"]["recent"] = [
        {"at": now, "kind": "refusal", **standing(llama, "held", **why)},
        {"at": now, "kind": "refusal", **standing(other, "held", **why)},
        {"at": now - 60, "kind": "dry_run", "action": "evict", **standing(llama, "due")},
        {"at": now - 90, "kind": "action", "action": "evict", **standing(llama, "due")},
    ]
    drawing, console = await drawn_from(tmp_path, facts)
    assert console == ""
    listed = re.search(r'<ul id="recent">(.*?)</ul>', drawing, re.DOTALL)
    assert listed is not None
    told = [re.sub(r"^\S+( [AP]M)? ", "", words(item).strip()) for item in listed[1].split("</li>") if item.strip()]
    assert told == [
        "held research/llama-0/main on GPU 0: 30.0 GiB of 20.0 GiB, but another one comes first",
        "held research/llama-0/main on GPU 1: 30.0 GiB of 20.0 GiB, but another one comes first",
        "would evict research/llama-0/main on GPU 0: 30.0 GiB of 20.0 GiB",
        "evict research/llama-0/main on GPU 0: 30.0 GiB of 20.0 GiB",
    ]


@pytest.mark.browser
async def test_an_open_breaker_cannot_be_overlooked(tmp_path: Path) -> None:
    """The page says which is open, why, and what closes it. The mode stands out where the daemon may act."""
    breakers = [
        {"breaker": "blast_radius", "detail": "5 of 6 pods are over", "by_itself": False},
        {"breaker": "config", "detail": "<b>: unknown key", "by_itself": True},
    ]
    drawing, _ = await drawn_from(tmp_path, judged(mode="enforce", breakers=breakers))
    text = words(drawing)
    assert "blast radius: 5 of 6 pods are over. Nothing is acted on until a person closes it." in text
    assert "config: <b>: unknown key. Nothing is acted on until it closes by itself." in text
    assert '<span id="mode" class="pill warn">mode enforce</span>' in drawing


@pytest.mark.browser
@pytest.mark.daemon
def test_a_daemon_that_judges_is_drawn(tmp_path: Path) -> None:
    """From `gpusteward run` to the pixels: the notebook above its limit, in its grace."""
    config = tmp_path / "config.yaml"
    policy = {"mode": "dry-run", "warn_after": "1s", "stop_file": str(tmp_path / "stop")}
    devices = f"recorded:{film(tmp_path / 'film', (OVER, 3.0))}"
    config.write_bytes(
        msgspec.json.encode({"devices": devices, "sampling": {"interval": "1s"}, "policy": policy, "log": JSON})
    )
    with Daemon(f"--config={config}", command=(COMMAND.with_name("gpusteward"), "run")) as daemon:
        daemon.until(lambda s: "grace" in {one["state"] for one in s["policy"]["standings"]}, "the grace")
        drawing, console = asyncio.run(browsed(tmp_path / "browser", daemon.url))
    text = words(drawing)
    assert console == ""
    assert "mode dry-run" in text
    sizes, left = r"2\d\.\d GiB 2\d\.\d GiB 16\.0 GiB", r"(2 min|\d+ s)"
    assert re.search(rf"team-vision/anna-notebook-0 / notebook GPU 3 {sizes} exceeded grace {left} ", text), text
