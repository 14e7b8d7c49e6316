"""
What makes a guest the node of one cluster: credentials, addresses, and the time.

In: a guest that is ready to join, a control plane. Out: a kubelet that runs. It is Ready a little later.

The rule: nothing of a cluster was there before, so that one suspended guest serves all clusters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from cluster.control_plane import ControlPlane
from cluster.networks import Network
from hosts.agent import Agent
from hosts.contents import JOINED, NODE
from hosts.guest import HOST


def join(agent: Agent, control_plane: ControlPlane, network: Network) -> None:
    """Set the guest's clock, give it what it needs, and start kubelet and device plugin."""
    agent.shell(f"date --set=@{time.time():.2f}")  # of a suspended guest it stood still
    for name, text in _files(control_plane, network).items():
        agent.write(f"{JOINED}/{name}", text.encode())
    agent.shell(
        f"ip address add {network.node}/32 dev lo; nft -f {JOINED}/api.nft; systemctl start kubelet device-plugin"
    )


def _files(control_plane: ControlPlane, network: Network) -> Mapping[str, str]:
    authority = control_plane.authority
    pairs = {
        "serving": authority.issue("kubelet", f"system:node:{NODE}", ["system:nodes"], [network.node, NODE]),
        "client": authority.issue("kubelet-client", f"system:node:{NODE}", ["system:nodes"]),
    }
    cluster = {"server": f"https://{network.api_service}:443", "certificate-authority": f"{JOINED}/ca.crt"}
    user = {"client-certificate": f"{JOINED}/client.crt", "client-key": f"{JOINED}/client.key"}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": cluster}],
        "users": [{"name": "kubelet", "user": user}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "kubelet"}}],
        "current-context": "bed",
    }
    # No proxy runs: the guest itself sends what is for the API server's Service there.
    rule = f"ip daddr {network.api_service} tcp dport 443 dnat to {HOST}:{control_plane.port};"
    chains = [f"chain {hook} {{ type nat hook {hook} priority -100; {rule} }}" for hook in ("output", "prerouting")]
    return {
        "ca.crt": authority.certificate.read_text(),
        **{f"{name}.crt": pair.certificate.read_text() for name, pair in pairs.items()},
        **{f"{name}.key": pair.key.read_text() for name, pair in pairs.items()},
        "kubeconfig": json.dumps(kubeconfig),
        "kubelet.env": f"NODE_IP={network.node}\n",
        "api.nft": "\n".join(["table ip bed {", *chains, "}", ""]),
    }


__all__ = ["join"]
