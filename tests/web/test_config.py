"""The web config in Prometheus' format: done or refused, never ignored; new files count without a restart."""

import asyncio
import base64
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import bcrypt
import pytest
from structlog.testing import capture_logs

from exporter.config import ConfigError
from exporter.web.basic_auth import BasicAuth, BusyError, parse
from exporter.web.config import load_security, parse_web_config
from prometheus.scraping import program
from serving.certificates import Authority
from serving.node import busy, serving

PASSWORD = "correct horse"
SALT = b"$2b$04$7Gjb3QyJG2Rk8BCJlkm5ze"  # the same for each process: it stands in the names of tests
HASH = bcrypt.hashpw(PASSWORD.encode(), SALT).decode()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_web_config(text.encode(), "web.yaml")
    return str(caught.value)


def write(folder: Path, text: str) -> Path:
    path = folder / "web.yaml"
    path.write_text(text)
    return path


def header(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


async def get(
    url: str, *, auth: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> tuple[int, aiohttp.ClientResponse]:
    headers = {"Authorization": header(*auth)} if auth else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=tls or True) as answer:
        await answer.read()
        return answer.status, answer


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.01)


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "basic_auth_user: {}",
            'web.yaml: basic_auth_user: unknown key; fix: use "basic_auth_users", or remove the key',
        ),
        (
            "tls_server_config: {cert: x}",
            "web.yaml: tls_server_config.cert: not supported; fix: write the certificate to a file",
        ),
        ("tls_server_config: {curve_preferences: [X25519]}", "tls_server_config.curve_preferences: not supported"),
        ("rate_limit: {interval: 1s}", "web.yaml: rate_limit: not supported"),
        (
            "tls_server_config: {min_version: TLS10}",
            "min_version: expected TLS12 or TLS13 (older ones: RFC 8996), got text",
        ),
        (
            "tls_server_config: {client_auth_type: RequireAnyClientCert}",
            "expected NoClientCert or VerifyClientCertIfGiven or RequireAndVerifyClientCert, got text",
        ),
        ("basic_auth_users: {anna: secret}", "web.yaml: basic_auth_users.anna: expected a bcrypt hash"),
        ("basic_auth_users: {anna: 7}", "web.yaml: basic_auth_users.anna: expected text, got a number"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "expected a name without colon, got text"),
        (
            "http_server_config: {headers: {X-Foo: bar}}",
            "http_server_config.headers: expected Strict-Transport-Security or",
        ),
        ("http_server_config: {headers: {X-Frame-Options: no}}", "headers.X-Frame-Options: expected text, got false"),
        (
            "http_server_config: {headers: {X-Frame-Options: all}}",
            "X-Frame-Options: expected deny or sameorigin, got text",
        ),
        (
            'http_server_config: {headers: {X-XSS-Protection: "a\\nb: c"}}',
            "X-XSS-Protection: expected one line of text",
        ),
    ],
)
def test_what_is_not_done_is_refused(text: str, message: str) -> None:
    """A typing error must not leave a server open; a plain password is not repeated in the log."""
    assert message in refusal(text)
    assert "secret" not in refusal(text)


def test_without_bcrypt_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is an extra: an error on authentication without it says how to install it."""
    monkeypatch.setitem(sys.modules, "bcrypt", None)
    assert "pip install 'gpusteward[auth]'" in refusal(f"basic_auth_users: {{anna: {HASH}}}")


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        ("{cert_file: server.pem}", "expected both cert_file and key_file, got one"),
        ("{}", "expected both cert_file and key_file, got none"),
        ("{cert_file: missing.pem, key_file: server.key}", "missing.pem: cannot be read: no such file"),
        (
            "{cert_file: server.pem, key_file: client.key}",
            "cert_file needs the certificate chain, and key_file its unencrypted key, both as PEM",
        ),
        (
            "{cert_file: server.pem, key_file: locked.key}",
            "cert_file needs the certificate chain, and key_file its unencrypted key, both as PEM",
        ),
        (
            "{cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem}",
            "client_ca_file is set alone",
        ),
        (
            "{cert_file: server.pem, key_file: server.key, client_auth_type: RequireAndVerifyClientCert}",
            "client_auth_type is set alone",
        ),
        (
            "{cert_file: server.pem, key_file: server.key, client_allowed_sans: [a]}",
            "client_allowed_sans: expected a client_auth_type that verifies",
        ),
        (
            "{cert_file: server.pem, key_file: server.key, min_version: TLS13, max_version: TLS12}",
            "max_version: expected at least min_version (TLS13), got TLS12",
        ),
        (
            "{cert_file: server.pem, key_file: server.key, cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}",
            "cipher_suites: expected suites with forward secrecy",
        ),
        (
            "{cert_file: server.pem, key_file: server.key, cipher_suites: [TLS_ECDHE_RSA_WITH_NONSENSE]}",
            "cipher_suites: expected suites that OpenSSL has",
        ),
        (
            (
                "{cert_file: server.pem, key_file: server.key, client_ca_file: server.key,"
                " client_auth_type: RequireAndVerifyClientCert}"
            ),
            "client_ca_file: ",
        ),
    ],
)
def test_tls_settings_that_do_not_fit_are_refused(authority: Authority, tls: str, message: str) -> None:
    """Each of them would leave the server without the protection that was asked for."""
    with pytest.raises(ConfigError) as caught:
        load_security(write(authority.folder, f"tls_server_config: {tls}"))
    assert message in str(caught.value)


FULL = f"""
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_ca_file: ca.pem
  client_auth_type: VerifyClientCertIfGiven
  min_version: TLS12
  max_version: TLS13
  prefer_server_cipher_suites: false
  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA]
http_server_config:
  http2: true
  headers: {{Strict-Transport-Security: max-age=31536000, X-Frame-Options: sameorigin}}
basic_auth_users: {{anna: {HASH}}}
"""


def test_a_full_file_is_understood(authority: Authority) -> None:
    """Go's names of cipher suites reach OpenSSL; paths start at the file's folder."""
    security = load_security(write(authority.folder, FULL))
    assert security.tls is not None
    assert security.tls.verify_mode == ssl.CERT_OPTIONAL
    assert {cipher["name"] for cipher in security.tls.get_ciphers()} >= {
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-CHACHA20-POLY1305",
        "ECDHE-ECDSA-AES128-SHA",
    }
    assert security.headers["X-Frame-Options"] == "sameorigin"


@pytest.mark.prometheus
async def test_promtool_agrees(authority: Authority) -> None:
    """What we take, Prometheus' own tool takes; what it refuses as unknown, we refuse, too."""
    for text, good in (
        (FULL, True),
        ("basic_auth_user: {}", False),
        ("http_server_config: {headers: {X-Foo: b}}", False),
    ):
        path = write(authority.folder, text)
        process = await asyncio.create_subprocess_exec(
            *(program("promtool"), "check", "web-config", path),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert (process.returncode == 0) is good, output.decode()
        if good:
            load_security(path)
        else:
            with pytest.raises(ConfigError):
                load_security(path)


def test_a_file_that_is_not_there_has_its_key(tmp_path: Path) -> None:
    """The path alone does not say which setting named it."""
    with pytest.raises(ConfigError, match=r"^web\.config_file: /.*/nope\.yml: cannot be read: no such file"):
        load_security(tmp_path / "nope.yml")


# --- names and passwords ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, "", "Basic", "Basic !!!", "Basic YQ==", "Bearer abc", "Basic /zp4"])
def test_a_header_that_is_no_login_is_none(wrong: str | None) -> None:
    """Missing, other schemes, broken base64, no colon, no UTF-8."""
    assert parse(wrong) is None


async def test_only_the_right_password_of_a_known_name_passes() -> None:
    """Wrong, empty, too long, and another one's password are refused, again and again."""
    auth = BasicAuth({"anna": HASH.encode()})
    for _ in range(2):
        assert await auth.user(header("anna", PASSWORD)) == "anna"
        for name, password in [
            ("anna", "wrong"), ("anna", ""), ("anna", PASSWORD + "x" * 100), ("bert", PASSWORD), ("", PASSWORD)
        ]:  # fmt: skip
            assert await auth.user(header(name, password)) is None
    assert await auth.user(None) is None


async def test_a_known_login_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """bcrypt costs 70 ms: once per login and not once per scrape; wrong and unknown ones are hashed alike."""
    hashed: list[bytes] = []
    check = bcrypt.checkpw

    def counted(password: bytes, known: bytes) -> bool:
        hashed.append(known)
        return check(password, known)

    monkeypatch.setattr("bcrypt.checkpw", counted)
    auth = BasicAuth({"anna": HASH.encode()})
    for name, password in [("anna", PASSWORD)] * 3 + [("anna", "wrong")] * 2 + [("bert", PASSWORD)] * 2:
        await auth.user(header(name, password))
    assert hashed == [HASH.encode()] * 5


async def test_probes_stay_open_and_all_else_asks_for_a_login(tmp_path: Path) -> None:
    """A kubelet has no password; all other clients need one."""
    path = write(tmp_path, f"basic_auth_users: {{anna: {HASH}}}")
    async with serving(busy(), config_file=path) as (server, _):
        for open_path in ("/healthz", "/readyz"):
            assert (await get(server.url + open_path))[0] in {200, 503}
        for closed in ("/", "/metrics", "/api/v1/snapshot", "/nothing", "//healthz", "/healthz/"):
            status, answer = await get(server.url + closed)
            assert status == 401
            assert answer.headers["WWW-Authenticate"] == 'Basic realm="gpusteward", charset="UTF-8"'
        assert (await get(f"{server.url}/metrics", auth=("anna", PASSWORD)))[0] == 200
        assert (await get(f"{server.url}/metrics", auth=("anna", "wrong")))[0] == 401


async def test_users_and_headers_are_exchanged_without_a_restart(tmp_path: Path) -> None:
    """A revoked login ends at once, although it was remembered. A broken file changes nothing and is reported."""
    path = write(tmp_path, f"basic_auth_users: {{anna: {HASH}}}")
    async with serving(busy(), config_file=path) as (server, _), asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(server.watch())
        url = f"{server.url}/metrics"

        async def status(code: int, name: str) -> bool:
            return (await get(url, auth=(name, PASSWORD)))[0] == code

        assert await status(200, "anna")
        write(tmp_path, f"basic_auth_users: {{bert: {HASH}}}")
        await until(lambda: status(401, "anna"))
        assert await status(200, "bert")

        async def faulty() -> bool:
            return server.fault is not None

        write(tmp_path, "basic_auth_users: {bert: plain}")
        await until(faulty)
        assert await status(200, "bert")
        assert "basic_auth_users.bert" in (server.fault or "")

        write(tmp_path, "http_server_config: {headers: {X-Frame-Options: sameorigin}}")
        await until(lambda: status(200, "anybody"))
        assert server.fault is None
        assert (await get(url))[1].headers["X-Frame-Options"] == "sameorigin"
        watch.cancel()


async def test_few_logins_wait_and_known_ones_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five guesses of one peer wait, and twenty of all together. Further ones get an error; a known login passes."""
    auth = BasicAuth({"anna": HASH.encode()})
    assert await auth.user(header("anna", PASSWORD), "10.0.0.1") == "anna"
    go = threading.Event()

    def slow(_password: bytes, _known: bytes) -> bool:
        return go.wait(10) and False

    monkeypatch.setattr("bcrypt.checkpw", slow)
    async with asyncio.TaskGroup() as tasks:
        for peer in range(4):
            for guess in range(5):
                tasks.create_task(auth.user(header("anna", f"{peer} {guess}"), f"10.0.0.{peer}"))
            await asyncio.sleep(0)
            if peer < 3:
                with pytest.raises(BusyError):
                    await auth.user(header("anna", "one more"), f"10.0.0.{peer}")
        with pytest.raises(BusyError):
            await auth.user(header("anna", "one more"), "10.0.0.9")
        assert await auth.user(header("anna", PASSWORD), "10.0.0.1") == "anna"
        go.set()
    assert await auth.user(header("anna", "wrong"), "10.0.0.1") is None


async def test_a_client_that_goes_waits_for_no_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The logins of closed connections give up their places, and only the hash that had begun is finished."""
    go, hashed = threading.Event(), list[bytes]()

    def slow(password: bytes, _known: bytes) -> bool:
        hashed.append(password)
        return go.wait(10) and False

    monkeypatch.setattr("bcrypt.checkpw", slow)
    path = write(tmp_path, f"basic_auth_users: {{anna: {HASH}}}")
    async with serving(busy(), config_file=path) as (server, _):
        address = server.url.removeprefix("http://").split(":")

        async def waiting(number: int) -> bool:
            return server._gate.auth._waiting.total() == number

        for _ in range(3):
            guesses = [await asyncio.open_connection(*address) for _ in range(5)]
            for number, (_, writer) in enumerate(guesses):
                login = header("anna", f"guess {number}").encode()
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: " + login + b"\r\n\r\n")
            await until(lambda: waiting(5))
            for _, writer in guesses:
                writer.close()
            await until(lambda: waiting(0))
        go.set()
    assert len(hashed) <= 3


# --- certificates -----------------------------------------------------------------------------------------------------

PATHS = ("/metrics", "/", "/api/v1/snapshot", "/nowhere", "/healthz", "/readyz")
MUTUAL = """
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_ca_file: ca.pem
  client_auth_type: RequireAndVerifyClientCert
"""


async def test_tls_is_served_and_its_certificate_exchanged(authority: Authority) -> None:
    """A rotated certificate counts for new connections, without a restart and without a refused connection."""
    path = write(authority.folder, "tls_server_config: {cert_file: server.pem, key_file: server.key}")
    async with serving(busy(), config_file=path) as (server, _), asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(server.watch())
        host, port = "127.0.0.1", int(server.url.rpartition(":")[2])
        assert server.url.startswith("https://")
        assert (await get(f"{server.url}/healthz", tls=authority.client()))[0] == 200

        async def serial() -> int:
            _, writer = await asyncio.open_connection(host, port, ssl=authority.client())
            found: int = int(writer.get_extra_info("peercert")["serialNumber"], 16)
            writer.close()
            await writer.wait_closed()
            return found

        before = await serial()
        after = authority.issue("server")

        async def exchanged() -> bool:
            return await serial() == after

        await until(exchanged)
        assert before != after
        watch.cancel()


async def test_a_client_certificate_is_demanded(authority: Authority) -> None:
    """A client without a certificate, or with a stranger's, gets no answer at all, not even of the probes."""
    path = write(authority.folder, MUTUAL)
    (authority.folder / "stranger").mkdir()
    stranger = Authority(authority.folder / "stranger")
    forged = authority.client()
    forged.load_cert_chain(stranger.folder / "client.pem", stranger.folder / "client.key")
    async with serving(busy(), config_file=path) as (server, _):
        for one in PATHS[:-2]:
            assert (await get(f"{server.url}{one}", tls=authority.client("client")))[0] in {200, 404}
        for one in PATHS:
            for context in (authority.client(), forged):
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await get(f"{server.url}{one}", tls=context)


async def test_the_probes_have_an_address_of_their_own(authority: Authority) -> None:
    """Where a client certificate is required, the kubelet asks the second address, which answers nothing else."""
    path = write(authority.folder, MUTUAL)
    async with serving(busy(), config_file=path, probe_address="127.0.0.1:0") as (server, _):
        answers = {one: (await get(f"{server.probe_url}{one}"))[0] for one in PATHS}
        assert server.probe_url.startswith("http://")
    assert answers == dict.fromkeys(PATHS, 404) | {"/healthz": 200, "/readyz": 200}


@pytest.mark.parametrize(("probes", "warned"), [(None, True), ("127.0.0.1:0", False)])
async def test_probes_that_need_a_certificate_are_warned_of(
    authority: Authority, probes: str | None, warned: bool
) -> None:
    """An operator who requires certificates learns in the log why the kubelet will restart the daemon."""
    with capture_logs() as logs:
        async with serving(busy(), config_file=write(authority.folder, MUTUAL), probe_address=probes):
            pass
    assert [line["event"] for line in logs] == (["web.probes_need_a_certificate"] if warned else [])


async def test_without_a_certificate_no_password_is_looked_at(authority: Authority) -> None:
    """Where both are demanded, strangers keep no hashing busy."""
    path = write(authority.folder, f"{MUTUAL}basic_auth_users: {{anna: {HASH}}}\n")
    async with serving(busy(), config_file=path) as (server, _):
        with pytest.raises((aiohttp.ClientError, OSError)):
            await get(f"{server.url}/metrics", tls=authority.client(), auth=("anna", PASSWORD))
        status, answer = await get(f"{server.url}/metrics", tls=authority.client("client"))
        assert status == 401 and "WWW-Authenticate" in answer.headers


@pytest.mark.parametrize(("allowed", "code"), [("prometheus.example", 200), ("somebody.else", 403)])
async def test_a_client_certificate_must_carry_an_allowed_name(authority: Authority, allowed: str, code: int) -> None:
    """The authority may have signed others, too."""
    path = write(authority.folder, f"{MUTUAL}  client_allowed_sans: [{allowed}]\n")
    async with serving(busy(), config_file=path) as (server, _):
        assert (await get(f"{server.url}/metrics", tls=authority.client("client")))[0] == code
