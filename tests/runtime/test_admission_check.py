"""The line `admission` of `gpusteward check`: both admission policies, asked for as the daemon asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from enforcer.actions.evict.admission_probe import OWN_NODE, POLICY, OwnPod
from enforcer.runtime.preflight import admission
from exporter.check.lines import Line, Verdict
from exporter.config import Arguments, Config, load
from sources.kube_api import kubeconfig, serving, status

OWN = OwnPod("gpusteward", "gpusteward-x7k2p")


def config(folder: Path, url: str, **keys: object) -> Config:
    """The config of a daemon that enforces."""
    names = kubeconfig(folder / "check", url, user={"token": "x"})
    return load(Arguments(None, {"names.kubeconfig": names, "policy.mode": "enforce", **keys}))


async def checked(folder: Path, own: OwnPod, *absent: str, **keys: object) -> tuple[Line, ...]:
    """Ask a server that has the policies but for those absent."""

    async def answer(request: web.Request) -> web.StreamResponse:
        policy, code = (OWN_NODE, 409) if own.name in request.path else (POLICY, 404)
        if policy in absent:
            return web.json_response(status(code, "No") | {"message": "no", "details": {"kind": "pods"}}, status=code)
        message = f"forbidden: ValidatingAdmissionPolicy '{policy}' with binding 'b' denied request: no"
        return web.json_response(status(403, "Forbidden") | {"message": message}, status=403)

    async with serving(answer) as server:
        return await admission(config(folder, server.url, **keys), own)


async def test_with_both_policies_it_passes(tmp_path: Path) -> None:
    """One line, which names both."""
    (line,) = await checked(tmp_path, OWN)
    assert (line.check, line.verdict) == ("admission", Verdict.OK)
    assert POLICY in line.message and OWN_NODE in line.message


@pytest.mark.parametrize("absent", [POLICY, OWN_NODE])
async def test_without_one_of_them_it_fails_and_names_it(tmp_path: Path, absent: str) -> None:
    """And says what to apply: the daemon would evict no pod."""
    (line,) = await checked(tmp_path, OWN, absent)
    assert line.verdict is Verdict.FAIL and line.message.startswith(f"{absent} is absent: ")
    assert "deploy/enforcer/admission.yaml" in line.fix


async def test_without_a_pod_of_its_own_it_fails(tmp_path: Path) -> None:
    """The daemon could not ask either."""
    (line,) = await checked(tmp_path, OwnPod("", ""))
    assert line.verdict is Verdict.FAIL and "POD_NAME" in line.message and line.fix


@pytest.mark.parametrize("keys", [{"policy.admission": "ignore"}, {"policy.ladder": ["notify", "kill"]}])
async def test_where_the_policies_are_not_wanted_nothing_is_asked(tmp_path: Path, keys: dict[str, object]) -> None:
    """No line: the operator does without them, or the ladder has no eviction."""
    assert await checked(tmp_path, OWN, POLICY, OWN_NODE, **keys) == ()
