"""
Which connection goes when there are too many: they are counted by the address that they come from.

What comes in: connections in the order of their arrival, each with its peer. What goes out: those that have to go.
Pure.

The rule: the peer with the most gives way, with its oldest. So a flood from one address closes its own connections, and
a scraper or a kubelet, which has one or two, keeps them.
"""

import ipaddress
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

NETWORK = 64
"""Bits of an IPv6 address that count as one peer: the owner of one address of such a network has all of them."""


def peer_of(host: str) -> str:
    """Name the peer of an address: an IPv4 address, or an IPv6 network."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, NETWORK), strict=False))


def gives_way(peers: Mapping[Key, str], newcomer: str, *, most: int, of_a_peer: int) -> Key | None:
    """Say which of these has to go for a newcomer; None while there is room. `peers` is in the order of arrival."""
    counts = Counter(peers.values())
    if counts[newcomer] >= of_a_peer:
        peer = newcomer
    elif len(peers) >= most:
        peer = max(counts, key=counts.__getitem__)
    else:
        return None
    return next(key for key, own in peers.items() if own == peer)
