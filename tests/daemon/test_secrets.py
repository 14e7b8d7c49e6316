"""
Nothing that gpusteward writes shows a secret that it was given: no error, log line, metric or answer of the API.

What comes in: secrets in each place that has any, in good files and in broken ones. What goes out: all texts of all
commands. Law: each planted value holds the same mark, and each case shows that the value was read.
"""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import bcrypt
import pytest
import yaml

from daemon.commands import COMMAND, gpusteward
from daemon.running import Daemon, until
from driver.node import FakeNode, gpus
from exporter.base.clock import SystemClock
from exporter.base.problem import lines
from exporter.config import ConfigError
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.errors import KubeError
from exporter.rounds.logs import configure
from exporter.web.config import load_security

MARK = "SESAME"
PASSWORD = f"pw-{MARK}-opens"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
KEY = f"-----BEGIN PRIVATE KEY-----\nMIIE{MARK}vQ\n-----END PRIVATE KEY-----\n"
ENCODED = base64.b64encode(KEY.encode()).decode()
TOKEN = f"token-{MARK}-0123456789"
LOGIN = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()
NOWHERE = "127.0.0.1:1"
SURROUNDINGS = {
    "DB_PASSWORD": PASSWORD,
    "HTTP_PROXY": f"http://anna:{PASSWORD}@{NOWHERE}",
    "HTTPS_PROXY": f"http://anna:{PASSWORD}@{NOWHERE}",
}


def shows_none(*texts: str) -> None:
    """Look for the mark, and for what has it in an encoding."""
    for text in texts:
        for leak in (MARK, HASH[10:], ENCODED[30:60], LOGIN[:12]):
            assert leak not in text, text


WEB = {
    "a password instead of its hash": f"basic_auth_users: {{anna: {PASSWORD}}}",
    "a password in quotes": f"basic_auth_users: {{anna: '{PASSWORD}'}}",
    "a word of YAML": f"basic_auth_users: {{anna: !{MARK}}}",
    "an alias of YAML": f"basic_auth_users: {{anna: *{MARK}}}",
    "an open quote": f'basic_auth_users: {{anna: "{PASSWORD}',
    "a kind of value": f"basic_auth_users: {{anna: !!int {MARK}}}",
    "a number": "basic_auth_users: {anna: 70003}",
    "no space": f"basic_auth_users: {{anna:{PASSWORD}}}",
    "a name with the password": f"basic_auth_users: {{'anna:{PASSWORD}': {HASH}}}",
    "a text instead of users": f"basic_auth_users: anna:{PASSWORD}",
    "a text instead of all": f"anna:{PASSWORD}",
    "a hash in a wrong place": f"http_server_config: {{headers: {{X-Frame-Options: {HASH}}}}}",
    "a header's name": f"http_server_config: {{headers: {{X-{MARK}: deny}}}}",
    "a hash cut off": f"basic_auth_users: {{anna: {HASH[:-1]}}}",
    "a key in place": f"tls_server_config: {{cert_file: c.pem, key: {json.dumps(KEY)}}}",
    "a key instead of its path": f"tls_server_config: {{cert_file: web.yaml, key_file: {json.dumps(KEY)}}}",
    "a bare key instead of its path": f"tls_server_config: {{cert_file: web.yaml, key_file: MC4C{MARK}AQAwBQ}}",
    "a key instead of a certificate": f"tls_server_config: {{cert_file: {json.dumps(KEY)}, key_file: web.yaml}}",
    "a text instead of TLS": f"tls_server_config: {PASSWORD}",
    "a word that is no type": f"tls_server_config: {{client_auth_type: {PASSWORD}}}",
    "a suite": f"tls_server_config: {{cert_file: c, key_file: k, cipher_suites: [{PASSWORD}]}}",
}


@pytest.mark.parametrize("text", WEB.values(), ids=WEB)
def test_no_error_of_a_web_config_shows_a_value(tmp_path: Path, text: str) -> None:
    """Each is refused, and the error names the place and the kind of a value, never the value."""
    file = tmp_path / "web.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_security(file)
    shows_none(str(refused.value), *lines("gpusteward", refused.value))
    assert "70003" not in str(refused.value)


def kubeconfig(server: str, user: object, **cluster: str) -> str:
    """Write one as kubectl would; `user` may be wrong."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "me", "user": user}],
        }
    )


def plugin(script: str) -> dict[str, object]:
    """Make a user whose token comes from a plugin."""
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    return {"exec": {**command, "env": [{"name": "PLUGIN_PASSWORD", "value": PASSWORD}]}}


KUBE: dict[str, Callable[[str], str]] = {
    "a token that the server sends back": lambda server: kubeconfig(server, {"token": TOKEN}),
    "a password that the server sends back": lambda server: kubeconfig(
        server, {"username": "anna", "password": PASSWORD}
    ),
    "a plugin's token": lambda server: kubeconfig(
        server,
        plugin(
            'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": '
            f'{{"token": "{TOKEN}"}}}}\''
        ),
    ),
    "a plugin that fails and says its token": lambda server: kubeconfig(
        server, plugin(f"echo cannot renew {TOKEN} with $PLUGIN_PASSWORD >&2; exit 3")
    ),
    "a plugin that prints no JSON": lambda server: kubeconfig(server, plugin(f"echo {TOKEN}")),
    "a plugin of another version": lambda server: kubeconfig(
        server, plugin(f'echo \'{{"apiVersion": "{TOKEN}", "kind": "x", "status": {{}}}}\'')
    ),
    "a password in the URL": lambda _: kubeconfig(f"http://anna:{PASSWORD}@{NOWHERE}", {}),
    "a password in the proxy's URL": lambda server: kubeconfig(
        server, {}, **{"proxy-url": f"http://anna:{PASSWORD}@{NOWHERE}"}
    ),
    "a key that is no key": lambda _: kubeconfig(
        f"https://{NOWHERE}", {"client-certificate-data": ENCODED, "client-key-data": ENCODED}
    ),
    "a key instead of its path": lambda _: kubeconfig(f"https://{NOWHERE}", {"client-key": KEY}),
    "a key that is no base64": lambda _: kubeconfig(f"https://{NOWHERE}", {"client-key-data": f"{MARK}!"}),
    "a user that is a text": lambda server: kubeconfig(server, TOKEN),
    "a word of YAML": lambda _: f"users: [{{name: me, user: {{token: !{MARK}}}}}]",
    "an open quote": lambda _: f'users: [{{name: me, user: {{token: "{TOKEN}',
    "a token alone": lambda _: TOKEN,
    "a token as the context": lambda server: kubeconfig(server, {}).replace(
        "current-context: here", f"current-context: {TOKEN}"
    ),
}


IN_FULL = ("a token that the server sends back", "a plugin that fails and says its token", "a password in the URL")
"""The kubeconfigs with which commands are run: one for each way of failing."""


class _Echo(BaseHTTPRequestHandler):
    """Refuses all requests, and sends their headers back, as some proxies do."""

    def do_GET(self) -> None:
        body = f"no access with {self.headers}".encode()
        self.send_response(403, f"no access with {self.headers['Authorization']}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  (the name is the library's)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("made", KUBE.values(), ids=KUBE)
async def test_no_error_of_the_api_server_shows_a_kubeconfig(
    tmp_path: Path, echo: str, capfd: pytest.CaptureFixture[str], made: Callable[[str], str]
) -> None:
    """Neither the error nor what the Kubernetes library logs shows a value of the file or an output of the plugin."""
    file = tmp_path / "kube"
    file.write_text(made(echo))
    configure("info", "json")
    client = Client(from_kubeconfig(str(file)), clock=SystemClock())
    try:
        with pytest.raises(KubeError) as refused:
            await client.get("/api/v1/pods")
    finally:
        await client.close()
    shows_none(str(refused.value), client.server, *capfd.readouterr())


@pytest.mark.daemon
@pytest.mark.parametrize("made", [KUBE[name] for name in IN_FULL], ids=IN_FULL)
def test_no_daemon_shows_a_kubeconfig(
    tmp_path: Path, fake_node: FakeNode, echo: str, made: Callable[[str], str]
) -> None:
    """`check` and `run`, in their lines, metrics and answers; the web config becomes wrong while the daemon runs."""
    fake_node.write(gpus(1))
    (tmp_path / "kube").write_text(made(echo))
    web = tmp_path / "web.yaml"
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
    flags = (
        "--devices=nvml",
        "--names.source=kubernetes",
        f"--names.kubeconfig={tmp_path}/kube",
        f"--web.config.file={web}",
        "--mode=warn",
    )
    environment = {**fake_node.environment(None), **SURROUNDINGS, "NODE_NAME": "test-node"}
    checked = gpusteward("check", *flags, "--web.listen-address=127.0.0.1:0", **environment)
    assert checked.returncode == 1 and "api" in checked.stdout.lower(), checked.stdout
    shows_none(checked.stdout, checked.stderr)
    command: list[str | Path] = [COMMAND, "run"]
    with Daemon(*flags, "--sampling.interval=200ms", "--log.format=json", env=environment, command=command) as daemon:
        daemon.until(lambda seen: seen["faults"], "a fault of the API server")
        until(lambda: "sampling.fault" in daemon.log, "a line about it", daemon)
        web.write_text(WEB["a password in quotes"])
        until(lambda: "web.config_refused" in daemon.log, "a line about the web config", daemon)
        paths = (
            *("/metrics", "/readyz", "/healthz", "/", "/api/v1/snapshot", "/api/v1/decisions", "/api/v1/preview"),
            "/api/v1/explain?namespace=n&pod=p",
        )
        shows_none(*(daemon.get(path)[1] for path in paths))
        assert daemon.stop()[0] == 0, daemon.log
        shows_none(daemon.log)


URLS = [
    f"http://anna:{PASSWORD}@{NOWHERE}",
    f"https://anna:{PASSWORD}@{NOWHERE}/x",
    f"ftp://anna:{PASSWORD}@host",
    f"http://anna:{PASSWORD}@host:port",
    f"http://host/?token={TOKEN}",
    f"anna:{PASSWORD}@host",
    f"http://anna:{PASSWORD} @host",
]


@pytest.mark.daemon
@pytest.mark.parametrize("url", URLS)
def test_no_command_shows_the_password_of_its_url(url: str) -> None:
    """Given as a flag or as a variable, wrong or without a daemon at its end."""
    for words in (("top", "--once"), ("preview",), ("explain", "team/pod")):
        for ended in (gpusteward(*words, f"--url={url}"), gpusteward(*words, GPUSTEWARD_URL=url)):
            assert ended.returncode in (1, 2) and ended.stderr
            shows_none(ended.stdout, ended.stderr)


POD = f"""
apiVersion: v1
kind: Pod
metadata: {{name: train, namespace: team}}
spec:
  containers:
  - name: main
    resources: {{limits: {{nvidia.com/gpu: 1}}}}
    env:
    - {{name: DB_PASSWORD, value: {PASSWORD}}}
"""
PODS = {
    "good": (POD, 0),
    "an open quote": (f'{POD}    - {{name: X, value: "{PASSWORD}', 2),
    "a kind of value": (f"{POD}    - {{name: X, value: !!int {MARK}}}\n", 2),
    "a word of YAML": (f"{POD}    - {{name: X, value: !{MARK}}}\n", 2),
    "a text instead of a variable": (f"{POD}    - {PASSWORD}\n", 2),
    "a list instead of a text": (f"{POD}    - {{name: X, value: [{PASSWORD}]}}\n", None),
}


@pytest.mark.daemon
@pytest.mark.parametrize(("text", "code"), PODS.values(), ids=PODS)
def test_no_explanation_shows_the_environment_of_a_pod(tmp_path: Path, text: str, code: int | None) -> None:
    """Variables that declare no limit are in no text, also where the file is broken."""
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    ended = gpusteward("explain", "-f", str(file))
    assert code is None or ended.returncode == code, ended.stdout + ended.stderr
    shows_none(ended.stdout, ended.stderr)


@pytest.mark.daemon
@pytest.mark.parametrize(
    "words",
    [("run",), ("check",), ("record", "-o", "r"), ("close", "internal", "--by", "ann"), ("explain", "-f", "-")],
    ids=" ".join,
)
@pytest.mark.parametrize("text", [f"!{MARK}", f'node: "{PASSWORD}', f"node: {{name: !!int {MARK}}}"])
def test_no_command_shows_what_is_no_yaml(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    """A file of secrets that is named as the config by mistake is refused without its contents."""
    file = tmp_path / "config.yaml"
    file.write_text(textwrap.dedent(text))
    ended = gpusteward(*words, f"--config={file}", **SURROUNDINGS)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    shows_none(ended.stdout, ended.stderr)
