"""
Which connection goes when there are too many: they are counted by the address that they come from.

What comes in: connections in the order of their arrival, each with its peer, and the peers that were answered before.
What goes out: those that have to go. Pure.

The rule: the peer with the most gives way, with its oldest. So a flood from one address closes its own connections, and
a scraper or a kubelet, which has one or two, keeps them. A known peer keeps two also when strangers have one each. The
places of known peers are few, and newcomers do not displace those that come back.
"""

import ipaddress
from collections import Counter
from collections.abc import Container, Hashable, Mapping
from functools import lru_cache
from typing import TypeVar

from exporter.web import bounds

Key = TypeVar("Key", bound=Hashable)

NETWORK = 64
"""Bits of an IPv6 address that count as one peer: the owner of one address of such a network has all of them."""


@lru_cache(maxsize=bounds.CONNECTIONS)
def peer_of(host: str) -> str:
    """
    Name the peer of an address: an IPv4 address, or an IPv6 network.

    Kept, because it is asked for with each answer. A second after the last one, its code is in no cache of the CPU: it
    took 60 of a scrape's 1,450 us then, and 6 in a loop.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, NETWORK), strict=False))


class Known:
    """The peers that were answered before."""

    def __init__(self) -> None:
        self._answered: dict[str, float] = {}

    def __contains__(self, peer: object) -> bool:
        return peer in self._answered

    def answered(self, peer: str, now: float) -> None:
        """Remember a peer, if there is a place: each has one until it was not answered for long."""
        if peer not in self._answered and len(self._answered) >= bounds.KNOWN:
            self._answered = {one: at for one, at in self._answered.items() if now - at < bounds.FORGOTTEN}
        if peer in self._answered or len(self._answered) < bounds.KNOWN:
            self._answered[peer] = now

    def forget(self) -> None:
        """Forget all peers: others may be answered from now on."""
        self._answered = {}


def gives_way(
    peers: Mapping[Key, str], newcomer: str, *, most: int, of_a_peer: int, known: Container[str] = ()
) -> Key | None:
    """Say which of these has to go for a newcomer; None while there is room. `peers` is in the order of arrival."""
    counts = Counter(peers.values())
    if counts[newcomer] >= of_a_peer:
        peer = newcomer
    elif len(peers) >= most:
        peer = max(counts, key=lambda peer: counts[peer] - (bounds.SPARED if peer in known else 0))
    else:
        return None
    return next(key for key, own in peers.items() if own == peer)
