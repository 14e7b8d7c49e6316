"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, on 127.0.0.1, authorizing as a cluster does.

In: a folder. Out: an API server that is ready, credentials for each user that a test wants to be, the audit log.
Law: only the admin is always allowed; a test of the daemon acts as the daemon's ServiceAccount.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from cluster import build
from cluster.certificates import Authority
from cluster.client import Credentials, Object
from cluster.processes import Processes, StartError, free_port, listens, require_free
from cluster.versions import VERSIONS, chosen

# Without a kubelet nothing renews what the node controllers look at, so they would taint the simulated nodes and
# delete their pods. These are the controllers that list, watch, admission and eviction want.
CONTROLLERS_WITHOUT_NODES = (
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "resourcequota-controller",
)

AGGREGATOR = "front-proxy-client"  # kubeadm's name

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ControlPlane:
    """An API server with its etcd and its controllers.

    processes:   where its programs are started.
    port:        of the API server; None: a free one.
    services:    the network of Service addresses, for instance "198.18.7.0/24"; its first address is the API server's.
    controllers: what the controller manager runs; None: all.
    scheduler:   whether pods are placed.
    limited:     priority classes whose pods are admitted beside a quota for them alone, as GKE has it.
    version:     of Kubernetes, a name of VERSIONS; None: the one that the environment asks for.
    """

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        *,
        port: int | None,
        services: str,
        service_address: str,
        controllers: Sequence[str] | None = None,
        scheduler: bool = True,
        limited: Sequence[str] = (),
        version: str | None = None,
    ) -> None:
        self.version = version or chosen()
        self.kubernetes = VERSIONS[self.version]
        self.folder = folder
        self.port = require_free(port, "API server") if port else free_port()
        self.server = f"https://127.0.0.1:{self.port}"
        self.authority = Authority(folder / "certificates")
        self.admin = self.user("bed-admin", ["system:masters"])
        self._processes = processes
        self._services = services
        self._service_address = service_address
        self._controllers = controllers
        self._scheduler = scheduler
        self._limited = limited

    def user(self, name: str, groups: Sequence[str] = ()) -> Credentials:
        """Credentials of a user of these groups; what they may do is RBAC's matter."""
        pair = self.authority.issue(f"user-{name.replace(':', '-')}", name, groups)
        return Credentials(self.server, self.authority.certificate, certificate=pair)

    def program(self, name: str) -> Path:
        """A program of Kubernetes in this cluster's version. Raises BuildError."""
        return build.program(name, self.version)

    def audit(self) -> Iterator[Object]:
        """Every request so far, as audit.k8s.io/v1 Events of stage ResponseStarted, ResponseComplete or Panic."""
        for line in self._audit_log.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # else it is being written
                yield json.loads(line)

    def start(self) -> None:
        """Start all, one after the other. Raises StartError, BuildError."""
        self._start_etcd()
        self._start_apiserver()
        self._start_controllers()

    def kill_api_server(self) -> None:
        """The API server is away, as after a crash; etcd keeps what it had stored."""
        self._processes.kill("kube-apiserver")

    def start_api_server(self) -> None:
        """
        Start it again, on the same port; returns when it is ready.

        Controllers and scheduler are started anew with it: by themselves they would look again after up to a minute.
        """
        self._processes.start_again("kube-apiserver")
        for name in ("kube-controller-manager", *(["kube-scheduler"] if self._scheduler else [])):
            self._processes.start_again(name)

    @property
    def _audit_log(self) -> Path:
        return self.folder / "audit.log"

    def _start_etcd(self) -> None:
        client, peer = free_port(), free_port()
        self._etcd = f"http://127.0.0.1:{client}"
        command = [
            etcd_program(),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",  # the data need not survive a power cut
        ]
        self._processes.start("etcd", command, lambda: _etcd_ready(self._etcd))

    def _start_apiserver(self) -> None:
        certificates = self.authority.folder
        serving = self.authority.issue(
            "apiserver",
            "kube-apiserver",
            hosts=["127.0.0.1", "localhost", self._service_address, "kubernetes", "kubernetes.default.svc"],
        )
        # As the API server's caller, what it passes on to an aggregated API (kube-aggregator; custom metrics are one).
        aggregator = self.authority.issue("aggregator", AGGREGATOR)
        to_kubelet = self.authority.issue("apiserver-kubelet", "kube-apiserver-kubelet-client", ["system:masters"])
        tokens = self.authority.signing_pair("service-accounts")
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        command = [
            self.program("kube-apiserver"),
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={certificates}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--kubelet-certificate-authority={self.authority.certificate}",
            f"--kubelet-client-certificate={to_kubelet.certificate}",
            f"--kubelet-client-key={to_kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--proxy-client-cert-file={aggregator.certificate}",
            f"--proxy-client-key-file={aggregator.key}",
            f"--requestheader-client-ca-file={self.authority.certificate}",
            f"--requestheader-allowed-names={AGGREGATOR}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            *self._gates(),
            "--allow-privileged=true",  # as every distribution has it
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction,ValidatingAdmissionPolicy",
            "--endpoint-reconciler-type=none",  # its endpoint would be a loopback address, which the API refuses
            f"--service-cluster-ip-range={self._services}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={tokens.certificate}",
            f"--service-account-signing-key-file={tokens.key}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._audit_log}",
            *self._apis(),
            *self._admission(),
        ]
        self._processes.start("kube-apiserver", command, self._ready)

    def _admission(self) -> list[str]:
        if not self._limited:
            return []
        scope = {"scopeName": "PriorityClass", "operator": "In", "values": list(self._limited)}
        quota = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "ResourceQuotaConfiguration",
            "limitedResources": [{"resource": "pods", "matchScopes": [scope]}],
        }
        config = self.folder / "admission.json"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "AdmissionConfiguration",
                    "plugins": [{"name": "ResourceQuota", "configuration": quota}],
                }
            )
        )
        return [f"--admission-control-config-file={config}"]

    def _start_controllers(self) -> None:
        config = self._kubeconfig("kube-controller-manager", "system:kube-controller-manager")
        command = [
            self.program("kube-controller-manager"),
            f"--kubeconfig={config}",
            *self._gates(),
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=200",  # its 30 controllers each make a ServiceAccount first; by default that takes 5 s
            "--kube-api-burst=400",
            "--use-service-account-credentials=true",
            f"--root-ca-file={self.authority.certificate}",
            f"--service-account-private-key-file={self.authority.folder / 'service-accounts.key'}",
            f"--controllers={','.join(self._controllers or ['*'])}",
        ]
        # Pods are admitted from the moment on when their namespace has its ServiceAccount.
        self._processes.start(
            "kube-controller-manager", command, lambda: self._has("/api/v1/namespaces/default/serviceaccounts/default")
        )
        if not self._scheduler:
            return
        config, port = self._kubeconfig("kube-scheduler", "system:kube-scheduler"), free_port()
        command = [
            self.program("kube-scheduler"),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            *self._gates(),
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
        ]
        self._processes.start("kube-scheduler", command, lambda: listens(port))

    def _apis(self) -> list[str]:
        apis = ",".join(f"{each}=true" for each in self.kubernetes.apis)
        return [f"--runtime-config={apis}"] if apis else []

    def _gates(self) -> list[str]:
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in self.kubernetes.gates.items())
        return [f"--feature-gates={gates}"] if gates else []

    def _kubeconfig(self, file: str, user: str) -> Path:
        return self.user(user).kubeconfig(self.folder / f"{file}.kubeconfig")

    def _ready(self) -> bool:
        return self._has("/readyz")

    def _has(self, path: str) -> bool:
        try:
            self.admin.get(path)
        except OSError:
            return False
        return True


def etcd_program() -> Path:
    """etcd of KUBEBUILDER_ASSETS, or Debian's."""
    found = build.assets("etcd") or shutil.which("etcd")
    if found is None:
        raise StartError("etcd is not installed: apt install etcd-server, or `python -m cluster.install`")
    return Path(found)


def _etcd_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(json.load(answer)["health"] == "true")
    except OSError:
        return False
