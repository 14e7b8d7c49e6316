"""`gpusteward explain -f` as an operator meets it: pods of many systems, pipes, and files that are something else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from daemon.commands import COMMAND, complaint, shell
from patience import PATIENCE

pytestmark = pytest.mark.daemon

FIXTURES = Path(__file__).parents[1] / "limits" / "fixtures"
MIB, GIB = 2**20, 2**30
PROMISED = {
    "object",
    "namespace",
    "pod",
    "container",
    "device",
    "limit_bytes",
    "system",
    "source",
    "scope",
    "enforced_by",
    "context",
    "candidates",
    "mps",
    "problems",
}
ALWAYS = "detect: {always: true}"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: shared, namespace: team-a}
spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 300}}}]}
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {capacity: {aliyun.com/gpu-mem: "15109", aliyun.com/gpu-count: "1"}}
"""


def explain(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run `gpusteward explain` to its end."""
    ended = subprocess.run(
        [str(COMMAND), "explain", *words], input=given, capture_output=True, timeout=PATIENCE, check=False
    )
    return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def refused(ended: subprocess.CompletedProcess[str]) -> str:
    """Check that this ended as wrong usage does, with one problem and its fix; return both in one line."""
    return complaint("explain", ended, 2)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("hami-nvidia", ("first", "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448", 3000 * MIB, "container", "hook")),
        ("gpushare", (None, "index 0", 5 * GIB, "pod", "none")),
        ("koordinator", (None, "minor 1", 8 * GIB, "pod", "none")),
        ("nvidia-mps", ("main", None, 3840 * MIB, "process", "mps")),
        ("nvidia-dra", (None, "GPU-00000000-1111-2222-3333-444444444444", 10 * GIB, "claim", "none")),
        ("kai", ("gpu-workload", None, 4 * GIB, "container", "none")),
        ("vgpu-manager", ("main", "GPU-00000000-1111-2222-3333-444444444444", GIB, "container", "hook")),
    ],
)
def test_each_systems_pods_have_their_limit(
    system: str, expected: tuple[str | None, str | None, int, str, str]
) -> None:
    """The JSON of a real pod parses back to the promised keys, and its first limit is what the system gives."""
    ended = explain("-f", str(FIXTURES / f"{system}.yaml"), "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    entries = json.loads(ended.stdout)
    assert all(set(entry) == PROMISED for entry in entries)
    first = entries[0]
    keys = ("container", "device", "limit_bytes", "scope", "enforced_by")
    assert tuple(first[key] for key in keys) == expected
    assert any(candidate["taken"] and candidate["bytes"] == first["limit_bytes"] for candidate in first["candidates"])
    assert all(candidate["why"] for candidate in first["candidates"])


def test_every_fixture_is_text_for_people() -> None:
    """Whatever the system: each pod is named, and each of its candidates says row, raw text, trust and reason."""
    for file in sorted(FIXTURES.glob("*.yaml")):
        text, data = explain("-f", str(file)), explain("-f", str(file), "--json")
        assert (text.returncode, text.stderr, data.returncode) == (0, "", 0), file.name
        assert text.stdout.startswith("pod "), file.name
        for candidate in (each for entry in json.loads(data.stdout) for each in entry["candidates"]):
            system, mechanism, _ = candidate["row"].split(" ", 2)
            assert f"{system} {mechanism} {candidate['key']} = {candidate['text']!r}: " in text.stdout
            assert f"(trust {candidate['trust']}): {candidate['why']}\n" in text.stdout


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("nvidia.com/container.main.gpu-memory.limit", "16GB", "'16GB': invalid: "),
        ("nvidia.com/container.mian.gpu-memory.limit", "16Gi", "declares nothing: pod team-a/a has no container mian"),
    ],
)
def test_a_mistake_in_a_declaration_fails(tmp_path: Path, key: str, value: str, told: str) -> None:
    """CI can check a file before it is applied: exit code 1, a line on standard error, and the text as ever."""
    file = tmp_path / "pod.json"
    metadata = {"name": "a", "namespace": "team-a", "annotations": {key: value}}
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu.shared": "1"}}}]}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    text, data = explain("-f", str(file)), explain("-f", str(file), "--json")
    for ended in (text, data):
        assert ended.returncode == 1
        assert told in ended.stderr
        assert ended.stderr.endswith("fix: correct these declarations\n")
    assert text.stdout.startswith("pod team-a/a\n")
    assert json.loads(data.stdout)[0]["container"] == "main"


def test_a_pipe_and_a_node(tmp_path: Path) -> None:
    """Either file can come through a pipe; the node decides whether gpushare counts GiB or MiB."""
    pod, node = tmp_path / "pod.yaml", tmp_path / "node.yaml"
    pod.write_text(POD)
    node.write_text(NODE)
    for line in (
        'cat "$1" | gpusteward explain -f - --node "$2" --json',
        'cat "$2" | gpusteward explain -f "$1" --node - --json',
        '(cat "$1"; echo ---; cat "$2") | gpusteward explain -f - --json',
    ):
        ended = shell(line, pod, node)
        (entry,) = json.loads(ended.stdout)
        assert (ended.returncode, entry["container"], entry["limit_bytes"]) == (0, None, 300 * MIB), line
    without = explain("-f", str(pod))
    assert "300 GiB" in without.stdout
    assert "no Node was given" in without.stdout


def test_a_list_as_kubectl_prints_it() -> None:
    """Several pods in a List are explained one after the other."""
    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team-a"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpumem": amount}}}]},
        }
        for name, amount in (("a", "1024"), ("b", "2048"))
    ]
    content = json.dumps({"kind": "List", "apiVersion": "v1", "items": pods}).encode()
    text, data = explain("-f", "-", given=content), explain("-f", "-", "--json", given=content)
    assert [line for line in text.stdout.splitlines() if line.startswith("pod ")] == ["pod team-a/a", "pod team-a/b"]
    assert [entry["limit_bytes"] for entry in json.loads(data.stdout)] == [GIB, 2 * GIB]


def test_a_claim_that_is_missing_is_named() -> None:
    """A pod whose claim was not shown may have a limit all the same, and the text says which claim to add."""
    pod = b"{kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{name: g, resourceClaimName: mine}]}}"
    assert "claim default/mine was not given" in explain("-f", "-", given=pod).stdout


def test_the_operators_own_rows_and_choices(tmp_path: Path) -> None:
    """The daemon's config counts here as it does there: own rows, and whose the limit of an MPS process is."""
    config, pod = tmp_path / "config.yaml", tmp_path / "pod.yaml"
    row = "{mechanism: annotation, key: acme.example/gpu-gib, what: memory, unit: 1Gi, scope: pod}"
    config.write_text(
        f"limits: {{mps_scope: container, rows: [{{system: acme, title: Acme, rows: [{row}], {ALWAYS}}}]}}"
    )
    pod.write_text("{kind: Pod, metadata: {name: p, annotations: {acme.example/gpu-gib: '3'}}}")
    (own,) = json.loads(explain("-f", str(pod), "--config", str(config), "--json").stdout)
    assert (own["system"], own["container"], own["limit_bytes"]) == ("acme", None, 3 * GIB)
    assert json.loads(explain("-f", str(pod), "--json").stdout) == []
    mps = json.loads(explain("-f", str(FIXTURES / "nvidia-mps.yaml"), "--config", str(config), "--json").stdout)
    assert (mps[0]["scope"], mps[0]["limit_bytes"]) == ("container", 3840 * MIB)
    config.write_text("limits: {row: []}")
    assert "config.yaml: " in refused(explain("-f", str(pod), "--config", str(config)))


def test_a_reader_that_stops_early(tmp_path: Path) -> None:
    """`| head` closes the pipe before a long answer is out: no word on standard error, and no failure."""
    pods = tmp_path / "pods.yaml"
    pods.write_text("---\n".join([POD] * 1000))
    ended = shell('gpusteward explain -f "$1" | head -1', pods)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "pod team-a/shared\n", "")


def test_a_reader_that_is_gone() -> None:
    """A pipe without a reader (whatever fits into pipes here) is no failure either."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        ended = subprocess.run(
            [str(COMMAND), "explain", "-f", str(FIXTURES / "kai.yaml")],
            stdout=gone,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_disk_that_is_full() -> None:
    """What could not be written was not explained: exit code 1, and why."""
    ended = shell('gpusteward explain -f "$1" > /dev/full', FIXTURES / "kai.yaml")
    assert ended.returncode == 1
    assert "cause: No space left on device" in ended.stderr


def test_neither_pod_nor_file() -> None:
    """Without a pod or a file it is wrong usage, and so are both; so is one standard input for two files."""
    for words, why in (((), "NAMESPACE/POD -f is required"), (("a/b", "-f", "x"), "not allowed with")):
        ended = explain(*words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert why in ended.stderr
    assert "--url and -f exclude each other" in refused(explain("-f", "-", "--url", "http://x", given=POD.encode()))
    assert "-f and --node are both standard input" in refused(explain("-f", "-", "--node", "-", given=POD.encode()))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "expected a Pod or an object with a pod template as kubectl get -o yaml prints it, found nothing"),
        (b"kind: Deployment\n", "a pod template as kubectl get -o yaml prints it, found Deployment"),
        (b"hello\n", "expected an object with a kind, found hello"),
        (b"kind: Pod\nspec: [\n", "standard input:3:1: neither YAML nor JSON"),
        (b"kind: Pod\n\tspec: {}\n", "standard input:2:1: "),
        (b'{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": 3}}', "Pod p: Expected `array | null`"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "standard input:1:4: "),
        (b"kind: Pod\nx: !!bool q\n", "standard input:2:4: "),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"kind": "Pod", "x": ' + b"9" * 5000 + b"}", "digits"),
        ("kind: Pod".encode("utf-16-le"), "standard input:1:2: "),
        ("kind: Pod".encode("utf-16") + b"\n", "expected UTF-16 text"),
        ("kind: w\u00fcrfel".encode("cp1252"), "expected UTF-8 text"),
        (b"x" * (17 << 20), "larger than 16777216 bytes"),
        (b"\x1b[31m", "standard input"),
        (f"{POD}---\n{NODE}---\n{NODE}".encode(), "expected one Node, found 2"),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else "",
)
def test_what_is_no_pod_is_refused(content: bytes, told: str) -> None:
    """One line names the file, the place where there is one, and what was expected; exit code 2, no traceback."""
    line = refused(explain("-f", "-", given=content))
    assert told in line
    assert "standard input" in line
    assert "\x1b" not in line


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_what_windows_writes_is_read(encoding: str) -> None:
    """Editors put a mark in front of UTF-8, PowerShell's `>` writes UTF-16, and lines end in two characters."""
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    ended = explain("-f", "-", given=(mark + POD.replace("\n", "\r\n")).encode(encoding))
    assert (ended.returncode, ended.stdout) == (0, explain("-f", "-", given=POD.encode()).stdout)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A pipe without a writer, a directory, a device and a missing file end the command at once, and are named."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in (
        (pipe, "not a regular file"),
        (tmp_path, "is a directory"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "nowhere", "no such file or directory"),
    ):
        assert f"{path}: cannot be read: {why}" in refused(explain("-f", str(path)))
        assert f"{path}: cannot be read: {why}" in refused(explain("-f", "-", "--node", str(path), given=POD.encode()))


def test_ten_megabytes_are_read(tmp_path: Path) -> None:
    """A large cluster's pods are taken, all of them."""
    pod = json.loads(json.dumps({"kind": "Pod", "metadata": {"name": "p", "annotations": {"x": "y" * 10_000}}}))
    pods = tmp_path / "pods.json"
    pods.write_text(json.dumps({"kind": "List", "items": [pod] * 1000}))
    assert pods.stat().st_size > 10_000_000
    assert explain("-f", str(pods)).stdout.count("pod default/p\n") == 1000


def test_the_terminal_is_left_alone() -> None:
    """Names that are escape sequences, or no characters at all, are written out; any character set will do."""
    pod = b'{"kind": "Pod", "metadata": {"name": "\\u001b[31m\\ud800\\u00e9"}}'
    ended = explain("-f", "-", given=pod)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("pod default/\\x1b[31m\\ud800\u00e9\n")
    narrow = shell('echo "$1" | gpusteward explain -f -', pod.decode(), PYTHONIOENCODING="ascii")
    assert (narrow.returncode, narrow.stdout.splitlines()[0]) == (0, "pod default/\\x1b[31m\\ud800\\xe9")


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec: {template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpumem: 1024}}}]}}}
"""


def test_an_object_that_makes_pods() -> None:
    """A Deployment is explained as its pods will be; text and JSON name the object and the template's path."""
    text = explain("-f", "-", given=DEPLOYMENT.encode())
    assert (text.returncode, text.stderr) == (0, "")
    assert text.stdout.startswith("pod team-a/web of Deployment web, spec.template\n")
    (entry,) = json.loads(explain("-f", "-", "--json", given=DEPLOYMENT.encode()).stdout)
    assert set(entry) == PROMISED
    assert (entry["object"]["kind"], entry["object"]["path"], entry["limit_bytes"]) == (
        "Deployment",
        "spec.template",
        GIB,
    )


def test_a_file_of_good_and_bad_objects() -> None:
    """What can be explained is printed; each other object has a line, at most twenty; the exit code says so."""
    bad = DEPLOYMENT.replace("name: main, ", "")
    torn = "kind: Pod\nspec: [\n"
    mixed = explain("-f", "-", given=f"{bad}---\n{DEPLOYMENT}---\n{torn}---\n{DEPLOYMENT}".encode())
    assert mixed.returncode == 2
    assert mixed.stdout.count("pod team-a/web of Deployment web") == 2
    first, second, fix = mixed.stderr.splitlines()
    assert fix.startswith("fix: ")
    assert "standard input: document 1: Deployment web: " in first
    assert "`$.spec.template.spec.containers[0]`" in first
    assert "document 3: neither YAML nor JSON" in second
    many = explain("-f", "-", given="---\n".join([DEPLOYMENT, *[bad] * 30]).encode())
    assert many.returncode == 2
    told = [line for line in many.stderr.splitlines() if line.startswith("gpusteward explain: ")]
    assert len(told) == 21 and told[-1] == "gpusteward explain: and 10 more"


def test_the_terminal_is_left_alone_by_objects() -> None:
    """Kinds, names and keys of a file that no API server has seen are printed without their escape sequences."""
    pods = json.loads(json.dumps({"kind": "\x1b[31m", "metadata": {"name": "\x1b[32m"}}))
    good = {**pods, "spec": {"\x1b[33mtemplate": {"spec": {"containers": [{"name": "main"}]}}}}
    bad = {**pods, "spec": {"\x1b[33mtemplate": {"spec": {"containers": [{}]}}}}
    other = {"kind": "\x1b[34m"}
    ended = explain("-f", "-", given=json.dumps({"kind": "List", "items": [good, bad, other]}).encode())
    assert ended.returncode == 2
    assert "\x1b" not in ended.stdout + ended.stderr
    assert "of \\x1b[31m \\x1b[32m, spec.\\x1b[33mtemplate" in ended.stdout
