"""
How the daemon reaches and proves itself to the API server: as a pod, or by a kubeconfig.

What comes in: the files that the kubelet mounts into a pod and its environment, or a kubeconfig. What goes out: an
`Access`, read again for each call; or a `KubeError` that shows no value of a kubeconfig.

The rule: a pod's two files are read here. A kubeconfig is read by the Kubernetes library, which knows exec plugins,
OIDC and the rest. The library is imported only for that: it takes 18 MB of memory and 0.3 s.
Source: `rest.InClusterConfig` of client-go.
"""

import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from exporter.base.secrets import fixed_part
from exporter.kube.errors import UNREACHABLE, UnsentError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
"""Environment variables of each container of a pod."""


@dataclass(frozen=True, slots=True)
class Access:
    """
    The address of the API server, the certificates to trust, and our identity.

    Attributes:
        server: its URL without a slash at the end; empty if it is not known yet.
        authorization: the value of the HTTP header; empty for none.
        authority: file of the certificates to trust; None for those of the system.
        certificate: file of our own certificate, with `key`.
        verified: the server must show a certificate that is trusted.
        server_name: the name that the certificate must have, instead of the URL's.
        proxy: URL.

    """

    server: str = ""
    authorization: str = ""
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    verified: bool = True
    server_name: str | None = None
    proxy: str | None = None

    def tls(self) -> ssl.SSLContext:
        """Return what TLS needs: the certificates to trust, and our own. Raises OSError."""
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        if not self.verified:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        # From 3.13 on, Python refuses certificates without an Authority Key Identifier. Clusters that began before
        # Kubernetes 1.17 have such ones, and Go accepts them: https://github.com/kubernetes-client/python/issues/2394
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


Credentials = Callable[[], Awaitable[Access]]
"""Reads them. Raises KubeError."""


def credentials(kubeconfig: Path | None) -> Credentials:
    """Return the credentials of a kubeconfig if one is named, else those of this pod."""
    return from_kubeconfig(str(kubeconfig)) if kubeconfig else in_cluster()


def in_cluster(folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] | None = None) -> Credentials:
    """Return the credentials of a pod: its ServiceAccount's token and the address in its environment."""
    known = os.environ if environment is None else environment

    async def load() -> Access:
        host, port = known.get(HOST), known.get(PORT)
        if not host or not port:
            raise _outside(f"{HOST} and {PORT} are not set")
        authority = folder / "ca.crt"
        try:
            token = (folder / "token").read_text()
            if not authority.read_text().strip():
                raise _outside(f"{authority} is empty")
        except (OSError, UnicodeDecodeError) as error:
            raise _outside(f"{error}") from error
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return Access(server, f"Bearer {token}", str(authority))

    return load


def _outside(why: str) -> UnsentError:
    return UnsentError(UNREACHABLE, "NotConfigured", f"{why}; outside of a pod a kubeconfig is needed")


def from_kubeconfig(files: str) -> Credentials:
    """Return the credentials of a kubeconfig's current context; `files` as in KUBECONFIG, separated by colons."""
    from kubernetes.aio.client.configuration import Configuration  # noqa: PLC0415  (see the rule)
    from kubernetes.aio.config.kube_config import load_kube_config  # noqa: PLC0415

    # At the source, because a command that sets up no log writes such lines, too.
    logging.getLogger(load_kube_config.__module__).addFilter(_keep_plugins_quiet)

    async def load() -> Access:
        found = Configuration()
        try:
            await load_kube_config(config_file=files, client_configuration=found, persist_config=False)
        except Exception as error:  # the library raises TypeError, KeyError, yaml's errors and the plugin's own
            message = f"cannot use the kubeconfig {files}: {_without_values(error)}"
            raise UnsentError(UNREACHABLE, "NotConfigured", message) from error
        return Access(
            found.host,
            found.api_key.get("BearerToken", ""),
            found.ssl_ca_cert,
            found.cert_file,
            found.key_file,
            found.verify_ssl,
            found.tls_server_name,
            found.proxy,
        )

    return load


def _keep_plugins_quiet(record: logging.LogRecord) -> bool:
    """Cut from a line of the Kubernetes library what it quotes: a plugin may have printed its token."""
    said = fixed_part(record.getMessage()) or "an error of the credentials"
    record.msg, record.args, record.exc_info = f"{said} (its details may be secret, and are not shown)", (), None
    return True


def _without_values(error: Exception) -> str:
    """Say why a kubeconfig cannot be used, without its values: any of them may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1} is not YAML"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return fixed_part(str(error)) or f"its contents are not as expected ({type(error).__name__})"
