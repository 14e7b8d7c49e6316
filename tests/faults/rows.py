"""
The faults that a daemon which evicts and kills has to live with, and what follows from each.

What comes in: nothing. What goes out: `FAULTS`, from which docs/faults.md is written.

The law: each fault stands here once, under a number that stays its own; what follows is told in the words that log,
metrics, Events and journal use, and each of its steps is shown by a test of its own. (Beyond 300 lines: one table.)
"""

from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """Where on its way from a reading to an effect a fault is met."""

    SEEN = "seen"
    DECIDED = "decided"
    ACTED = "acted"


@dataclass(frozen=True, slots=True)
class Row:
    """One fault, what follows, and the steps at which that has to be shown."""

    fault: str
    follows: str
    steps: tuple[Step, ...]


S, D, A = Step

FAULTS: dict[int, Row] = {
    1: Row(
        "The API server is away before the last look",
        "Nobody is acted on: `names_stale`, or `look_failed` in the last look; with its return all is looked at anew",
        (D, A),
    ),
    2: Row(
        "It goes away between last look and request",
        "Nothing was sent: `failed`; the token stays spent, and whoever is still over has its whole grace again",
        (A,),
    ),
    3: Row(
        "The connection breaks after the request was sent",
        "It may have come about: in flight until a look tells, for a minute at least; it is never sent again",
        (D, A),
    ),
    4: Row(
        "A PodDisruptionBudget says no (429)",
        "`blocked`: asked again after a growing wait, not killed instead, and the token comes back",
        (D, A),
    ),
    5: Row(
        "A PodDisruptionBudget says no for hours",
        "The wait stays at five minutes, the pod is told once in five minutes at most",
        (D, A),
    ),
    6: Row(
        "The API server is busy (429 as plain text, with Retry-After)",
        "`failed`, and not taken for a PodDisruptionBudget; one request, nobody else is tried",
        (A,),
    ),
    7: Row(
        "A 429 hides that the pod of this name has another UID",
        "Nobody is evicted: `blocked`, word for word the answer of a slow budget; the next look sees the other UID",
        (A,),
    ),
    8: Row(
        "The pod of this name has another UID (409)",
        "`abandoned`: the new pod lives, nobody else is tried",
        (A,),
    ),
    9: Row("The pod is gone (404)", "`abandoned`: no success is claimed, nobody else is tried", (A,)),
    10: Row(
        "The right to evict is missing (403)",
        "`refused`; three in a row open the breaker `api` until a person closes it; measuring goes on",
        (D, A),
    ),
    11: Row("An admission policy forbids it (403, 422)", "`refused`, as a missing right", (D, A)),
    12: Row("The namespace is being deleted (403)", "`abandoned`: what is deleted needs no eviction", (A,)),
    13: Row("A PodDisruptionBudget's status forbids it (403)", "`blocked`, and not taken for a missing right", (A,)),
    14: Row("Two PodDisruptionBudgets select the pod (500)", "`blocked`, and the server's words are told", (A,)),
    15: Row("The API server gives up (504)", "As with a broken connection: looked for, and never sent again", (D, A)),
    16: Row(
        "A webhook says no, or moves the pod away itself (429)",
        "`blocked`; who moves it away has ten minutes before its effect is missed",
        (A,),
    ),
    17: Row(
        "A pod is made anew under its name",
        "Another UID is another subject with a grace of its own; the last look spares it: `other_pod`",
        (D, A),
    ),
    18: Row(
        "The watch of pods falls silent",
        "Noticed, and the names are not live: `names_stale`; the last look asks the server, never a memory",
        (S, D, A),
    ),
    19: Row(
        "The API server has forgotten the watch's version (410)",
        "All is listed anew: who was known is the same as before, who is gone goes",
        (S,),
    ),
    20: Row(
        "A container's id is that of an earlier generation",
        "It is known whose memory that is, and nobody is acted on for it: `other_generation`, in the last look "
        "`other_container`",
        (D, A),
    ),
    21: Row(
        "The daemon's token is rotated, or expires",
        "Read anew; only what the server refused to look at (401) is sent twice",
        (S, A),
    ),
    22: Row("The wall clock jumps", "Nothing: no grace, budget, strike or breaker reads it", (D, A)),
    23: Row("The machine was suspended", "What was seen before is void", (D,)),
    24: Row("The daemon stalls for half a minute", "What was seen before is void, and late rounds make no burst", (D,)),
    25: Row(
        "A call of the driver hangs",
        "`driver_hung` after its deadline, and no figures: `reading_unknown`; a last look that gets no round spares: "
        "`look_failed`",
        (S, D, A),
    ),
    26: Row(
        "The driver does not tell a process's memory",
        "Unknown, and not 0: its container is not judged (`reading_unknown`), its neighbours are",
        (S, D),
    ),
    27: Row(
        "A process list grows while it is read",
        "Read again with more room; after some times, or beyond any sane count, it is unknown, and never half a list",
        (S,),
    ),
    28: Row("One GPU of several fails", "That one has no figures; on the others everything goes on", (S, D)),
    29: Row(
        "A GPU falls off the bus, or is reset",
        "No figures of it, and what was seen is void; `sampler` holds all actions for a while",
        (S, D),
    ),
    30: Row(
        "MIG is set up anew, GPUs change their order, the driver is exchanged",
        "Devices are known by UUID; other GPUs or drivers open `sampler`, and what was seen is void; of a GPU that is "
        "divided anew only what was seen on it",
        (S, D),
    ),
    31: Row(
        "The process lists say more than the device holds",
        "The account says that it does not close; whose excess the difference could explain is not acted on",
        (S, D),
    ),
    32: Row("A process stands in two lists", "It counts once, with the larger of both figures", (S,)),
    33: Row(
        "A hidden process holds 30 GiB",
        "Unattributed, and exported as that; it is nobody's victim, and shields no other",
        (S, D),
    ),
    34: Row("Pods share through an MPS server", "Told and held: `mps`", (D,)),
    35: Row(
        "A sandboxed pod (gVisor, Kata)",
        "Its memory is the pod's as far as its cgroup tells, of no container; nobody in it is signalled",
        (S, A),
    ),
    36: Row(
        "The kubelet restarts, or does not answer",
        "What it handed out is remembered; while it is away limits may be others: `allocations_stale`",
        (S, D),
    ),
    37: Row("containerd is away, and starts again", "Nothing: containers are known by their cgroups", (S,)),
    38: Row(
        "A container restarts in the middle of a grace",
        "Another subject, whose grace begins anew; its workload keeps its strikes",
        (D, A),
    ),
    39: Row(
        "Memory is freed a second before the end of the grace",
        "Nothing is done: `ok`, in the last look `not_over_now`",
        (D, A),
    ),
    40: Row(
        "A use oscillates around its limit",
        "Never three readings over it in a row: nobody is told, nothing is done",
        (D,),
    ),
    41: Row(
        "A process exits between decision and signal",
        "The pidfd says so: `abandoned`, no signal, nobody else is tried",
        (A,),
    ),
    42: Row(
        "A process number is used again at once",
        "Memory is not charged to the new process, and no signal reaches it",
        (S, A),
    ),
    43: Row(
        "A fork storm: memory moves among children",
        "The subject is the container, and it ends with its init",
        (D, A),
    ),
    44: Row("A process executes another program", "It is who it was: no name is part of an identity", (A,)),
    45: Row(
        "The victim ended, and its memory stays (a zombie, a driver that holds on)",
        "`stuck`: `effectiveness` opens, and nobody else is tried",
        (D, A),
    ),
    46: Row(
        "SIGTERM is ignored",
        "The pod's whole grace, another last look, and SIGKILL once; a look that tells nothing is repeated for 30 s",
        (A,),
    ),
    47: Row(
        "A finalizer, or a preStop hook that hangs",
        "A pod that terminates `lingers`, and stops nobody; one that does not is `stuck`",
        (D, A),
    ),
    48: Row(
        "The kernel forbids the signal (EPERM)",
        "Known before anything is begun: `abandoned`, with the reason; no token is spent",
        (A,),
    ),
    49: Row(
        "The daemon is killed between intent and request",
        "The next one looks for a minute: `failed` if the pod lives; never repeated, and the token stays spent",
        (A,),
    ),
    50: Row(
        "The daemon is killed between request and answer",
        "The next one only looks for the effect: `verified` when pod and memory are gone",
        (A,),
    ),
    51: Row(
        "The daemon is killed between SIGTERM and SIGKILL",
        "No SIGKILL follows from the old decision; the end is still looked for",
        (A,),
    ),
    52: Row(
        "The daemon is killed again and again",
        "`hold_off` each time: nothing is hastened; tokens and open decisions are on disk",
        (D, A),
    ),
    53: Row("Two daemons on one node", "One has the lock; the other observes: `not_owner`", (A,)),
    54: Row(
        "The daemon is updated while an effect is awaited",
        "The lock is free when it ends; the next one takes what was begun from the journal, and watches it",
        (A,),
    ),
    55: Row(
        "All limits are lowered at once",
        "What was seen under other rules is void; half of the pods over at once open `blast_radius`",
        (D,),
    ),
    56: Row("The config cannot be used", "Mode `observe` and breaker `config` until it can", (D,)),
    57: Row(
        "A limit is edited in the middle of a grace",
        "An excess that the new limit did not exceed is void, in the last look too; `declaration_changed` while the "
        "server tells of an edit that the watch has not told of yet",
        (D, A),
    ),
    58: Row(
        "An exemption, or a withdrawn consent, in the last moment",
        "It holds at once: `exempt`, `no_consent`, also in the last look",
        (D, A),
    ),
    59: Row(
        "The stop file appears while an action is in flight",
        "What was asked for is seen to its end, nothing new begins: `stopped`",
        (D, A),
    ),
    60: Row(
        "The disk is full, or the journal damaged",
        "What cannot be noted is not done: `journal`; of a damaged one everything counts as spent",
        (A,),
    ),
    61: Row("The node reboots with an open breaker", "It is still open, and no token is free", (D, A)),
    62: Row("Every pod of the node is over at once", "`blast_radius`: nobody is acted on", (D,)),
    63: Row(
        "A limit in the wrong unit",
        "No limit where it cannot be meant (`limit_invalid`), a breaker where it hits all: nobody is acted on",
        (S, D),
    ),
    64: Row("A Job makes its evicted pod anew for ever", "Three actions a day, then `budget_workload`", (D,)),
    65: Row("Somebody else deletes the victim", "`terminating`: protected, and not hurried", (D, A)),
    66: Row("The victim finishes in the last moment", "`not_running`: its object is not deleted", (D, A)),
    67: Row(
        "Managed memory (UVM), which no process list shows",
        "Unattributed, and in nobody's figure: nobody is accused of it",
        (S,),
    ),
    68: Row("Readings go backwards in time", "They add nothing", (D,)),
    69: Row(
        "Events cannot be written",
        "Actions go on as ever: the journal is the record; Events are kept and written later, or counted",
        (A,),
    ),
    70: Row("A scrape is never read to its end", "Rounds and probes go on", (S,)),
    71: Row(
        "The daemon is not in the host's PID namespace",
        "Proven at the start or nothing is attributed: `pid_domain`, breaker `attribution`",
        (S, D),
    ),
    72: Row(
        "A process forks or ends between the driver's list and the look at it",
        "Its container's, if it was seen there alive, else a ghost's; never somebody else's",
        (S,),
    ),
    73: Row(
        "Enforcing would hit half of the node",
        "The preview says so; `blast_radius` opens in the first round in which it is tried",
        (D,),
    ),
    74: Row(
        "The admission policy that bounds evictions is removed",
        "Found out by the canary: `admission`, and all are held until it is back",
        (A,),
    ),
}
