"""
The orders to tenants and their answers: one JSON object per line, on standard input and output.

What comes in: lines. What goes out: `Order` and `Answer`.

The law: each order has one answer, in order; what cannot be done is an answer with `problem`, never a silent tenant.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Do(StrEnum):
    """The orders that a tenant understands."""

    CONTEXT = "context"
    ALLOCATE = "allocate"
    FREE = "free"
    THREAD = "thread"
    FORK = "fork"
    BUSY = "busy"
    END = "end"


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One order.

    Attributes:
        size: bytes to allocate; `thread` allocates in a new thread with a context of its own.
        share: of time to be busy; `blocks` at once, 0 for one on each SM.
        seconds: how long to be busy.

    """

    do: Do
    size: int = 0
    share: float = 0.0
    blocks: int = 0
    seconds: float = 0.0


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What came of it.

    Attributes:
        pid: the tenant's; after `fork` the child's, which holds the same descriptors.
        blocks: SMs of the device, and `cuda` the version; in the first line, which answers no order.
        fake: whether CUDA is our stand-in.
        share: of time that it was really busy.
        problem: why it could not be done.

    """

    pid: int = 0
    share: float | None = None
    blocks: int = 0
    cuda: str = ""
    fake: bool = False
    problem: str = ""


_ORDER = msgspec.json.Decoder(Order)
_ANSWER = msgspec.json.Decoder(Answer)


def line(message: Order | Answer) -> str:
    """Write a line."""
    return msgspec.json.encode(message).decode() + "\n"


def order(text: str) -> Order:
    """Read an order. Raises msgspec.DecodeError (ValidationError is one) for anything else."""
    return _ORDER.decode(text)


def answer(text: str) -> Answer:
    """Read an answer. Raises msgspec.DecodeError for anything else."""
    return _ANSWER.decode(text)
