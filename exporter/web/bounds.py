"""
What unauthenticated clients may take of the daemon: connections, bytes and time.

Clients are unknown, and may be hostile. The sum of these bounds, in bytes, is in docs/threat-model.md; change both.
"""

CONNECTIONS = 64
"""Connections. Two scrapers, probes and some browsers need twenty."""
TLS_CONNECTIONS = 24
"""Where TLS is spoken, unfinished handshakes counted: each takes up to 850 KiB more."""
OF_A_PEER = 0.5
"""Share of them for one address. Many people behind one proxy need less: browsers make closed connections again."""
PROBE_CONNECTIONS = 8
"""Of the listener for the probes alone, also from one address: the kubelet makes one for each probe."""
KNOWN = 8
"""Peers that were answered before and are spared: scrapers, a kubelet, the address of an ingress."""
SPARED = 2
"""Connections of a known peer that are spared. A scraper has one, and a second one after an error."""
FORGOTTEN = 600.0
"""Seconds without an answer after which another peer takes the place of a known one: ten long scrape intervals."""
HANDSHAKES = 16
"""TLS handshakes at once. One takes milliseconds, or two round trips of a distant client."""

HANDSHAKE = 5.0
"""Seconds for the TLS handshake, and for the end of TLS."""
IDLE = 75.0
"""Seconds that a connection may take to bring a whole request; the next one too, so more than a minute's scrapes."""
TAKE = 10.0
"""Seconds to take an answer, as Prometheus' default timeout of a scrape: some MB at most, from memory."""
LINGER = 1.0
"""Seconds in which the body of a refused request is read and forgotten, so that its sender sees the refusal."""

LINE = 4096
"""Bytes of the request line. The longest path with a namespace and a pod has 400."""
FIELD = 8190
"""Bytes of one header: tokens and cookies of proxies are this long."""
HEADERS = 64
"""Headers of a request. Browsers and proxies send thirty."""
REQUESTS = 16 * 1024
"""Bytes that a client may send before it gets an answer, with all headers: as much as Node.js takes."""

RECEIVED = 16 * 1024
"""Bytes of one connection that wait in the kernel to be read (it takes twice as much)."""
SENDING = 32 * 1024
"""Bytes of one connection that wait in the kernel to be taken (it takes twice as much)."""
UNSENT = 32 * 1024
"""Bytes of an answer that are copied for one connection, above which the rest waits. All copies share that rest."""
PART = 16 * 1024
"""Bytes of an answer that are handed on at once."""

LOGINS = 20
"""Logins that wait for their hash. One takes 70 ms, so the last waits for a second and a half."""
LOGINS_OF_A_PEER = 5
"""Of one address, so that guesses from one address leave room for all others."""
