"""
The faults that a daemon which evicts and kills has to live with, and what follows from each.

What comes in: nothing. What goes out: `FAULTS`, from which docs/faults.md is written.

The law: each fault is here once, under a number that stays its own. What follows is written in the words of log,
metrics, Events and journal. Each of its steps is shown by a test of its own. (Beyond 300 lines: one table.)
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
        "No pod is acted on: `names_stale`, or `failed` in the last look, which is repeated after a growing wait",
        (D, A),
    ),
    2: Row(
        "It goes away between last look and request",
        "Nothing was sent: `failed`; the budget is given back, this pod waits 10 s, and its counted time stays",
        (A,),
    ),
    3: Row(
        "The connection breaks after the request was sent",
        "It may have been carried out: the pod is looked up until that is known, and the request is never sent again",
        (D, A),
    ),
    4: Row(
        "A PodDisruptionBudget says no (429)",
        "`blocked`: requested again after a growing wait, for this pod alone; the budget is given back",
        (D, A),
    ),
    5: Row(
        "A PodDisruptionBudget says no for hours",
        "The wait stays at five minutes; after 15 minutes `GPULimitEvaded` names the pod",
        (D, A),
    ),
    6: Row(
        "The API server is busy (429 as plain text, with Retry-After)",
        "`failed`, and not taken for a PodDisruptionBudget; one request, and the pod waits",
        (A,),
    ),
    7: Row(
        "A 429 hides that the pod of this name has another UID",
        "No pod is evicted: `blocked`, as for a slow PodDisruptionBudget; the next look sees the other UID",
        (A,),
    ),
    8: Row(
        "The pod of this name has another UID (409)",
        "`abandoned`: the new pod lives, and no other pod takes its place",
        (A,),
    ),
    9: Row("The pod is gone (404)", "`abandoned`: it counts as no action, and no other pod takes its place", (A,)),
    10: Row(
        "The right to evict is missing (403)",
        "`forbidden`: pods of this namespace are held (`no_rights`) until the right exists; others are not",
        (D, A),
    ),
    11: Row(
        "An admission policy forbids it (403, 422)",
        "`refused`: this pod waits, from 10 s up to five minutes; other pods do not wait",
        (D, A),
    ),
    12: Row("The namespace is being deleted (403)", "`abandoned`: the pod ends with its namespace", (A,)),
    13: Row("A PodDisruptionBudget's status forbids it (403)", "`blocked`, and not taken for a missing right", (A,)),
    14: Row(
        "Two PodDisruptionBudgets select the pod (500)", "`blocked`, and the detail has the server's message", (A,)
    ),
    15: Row(
        "The API server gives up (504)",
        "As with a broken connection: the pod is looked up, nothing is sent again",
        (D, A),
    ),
    16: Row(
        "A webhook says no, or moves the pod away itself (429)",
        "`blocked`; a controller that moves the pod away has ten minutes before the result is `stuck`",
        (A,),
    ),
    17: Row(
        "A pod is made anew under its name",
        "Another UID is another pod with a level of its own; the last look spares it: `other_pod`",
        (D, A),
    ),
    18: Row(
        "The watch of pods falls silent",
        "Noticed, and the names are not live: `names_stale`; the last look asks the server, never a memory",
        (S, D, A),
    ),
    19: Row(
        "The API server has forgotten the watch's version (410)",
        "All pods are listed again: known pods stay the same, and pods that no longer exist are dropped",
        (S,),
    ),
    20: Row(
        "A container's id is that of an earlier generation",
        "The memory belongs to the old generation, and no pod is acted on for it: `other_generation`, in the last look "
        "`other_container`",
        (D, A),
    ),
    21: Row(
        "The daemon's token is rotated, or expires",
        "Read anew; only what the server refused to look at (401) is sent twice",
        (S, A),
    ),
    22: Row(
        "The wall clock jumps",
        "Nothing: no level, budget or breaker reads it; only the back-off compares the age of new pods with it",
        (D, A),
    ),
    23: Row(
        "The machine was suspended",
        "The time without readings lowers the level by half of it",
        (D,),
    ),
    24: Row(
        "The daemon stalls for half a minute",
        "The time without readings lowers the level by half of it, and late rounds make no burst",
        (D,),
    ),
    25: Row(
        "A call of the driver hangs",
        "`driver_hung` after its deadline, and no figures: `reading_unknown`; a last look that gets no round spares: "
        "`look_failed`",
        (S, D, A),
    ),
    26: Row(
        "The driver does not tell a process's memory",
        "Unknown, and not 0: its container is accused of what its other processes hold, or is not judged "
        "(`reading_unknown`); its neighbours are judged",
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
        "No figures of it: `reading_unknown`; the other GPUs go on",
        (S, D),
    ),
    30: Row(
        "MIG is set up anew, GPUs change their order, the driver is exchanged",
        "Devices are known by UUID; another driver starts `hold_off`; on a GPU that is divided anew levels begin anew",
        (S, D),
    ),
    31: Row(
        "The process lists say more than the device holds",
        "The account says that it does not close; an excess that the difference could explain is not acted on",
        (S, D),
    ),
    32: Row("A process stands in two lists", "It counts once, with the larger of both figures", (S,)),
    33: Row(
        "A hidden process holds 30 GiB",
        "Its memory is unattributed and exported as that; no action hits it, and it protects no other pod",
        (S, D),
    ),
    34: Row(
        "Pods share through an MPS server",
        "Warned and held: `mps`",
        (D,),
    ),
    35: Row(
        "A sandboxed pod (gVisor, Kata)",
        "Its cgroup says which pod holds the memory, not which container; none of its processes gets a signal",
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
        "The level is kept, and falls while none runs; the new container must be over for some time itself",
        (D, A),
    ),
    39: Row(
        "Memory is freed a second before the end of the grace",
        "Nothing is done: `ok`, in the last look `not_over_now`",
        (D, A),
    ),
    40: Row(
        "A use oscillates around its limit",
        "Over for a third of the time or less: never acted on. Above that: acted on within the bound of docs/policy.md",
        (D,),
    ),
    41: Row(
        "A process exits between decision and signal",
        "The pidfd says so: `abandoned`, no signal, and no other pod takes its place",
        (A,),
    ),
    42: Row(
        "A process number is used again at once",
        "Memory is not charged to the new process, and no signal reaches it",
        (S, A),
    ),
    43: Row(
        "A fork storm: memory moves among children",
        "The holder is the container, and it ends with its init",
        (D, A),
    ),
    44: Row("A process executes another program", "It is the same process: its identity does not include a name", (A,)),
    45: Row(
        "The victim ended, and its memory stays (a zombie, a driver that holds on)",
        "`stuck`: reported and alerted; other pods are acted on",
        (D, A),
    ),
    46: Row(
        "SIGTERM is ignored",
        "The pod's whole grace, another last look, and SIGKILL once; a look without a result is repeated for 30 s",
        (A,),
    ),
    47: Row(
        "A finalizer, or a preStop hook that hangs",
        "The action ends with the server's answer, and delays no other pod's; after ten minutes `deletion_stuck`",
        (D, A),
    ),
    48: Row(
        "The kernel forbids the signal (EPERM)",
        "Known before anything is begun: `abandoned`, with the reason; no budget is used",
        (A,),
    ),
    49: Row(
        "The daemon is killed between intent and request",
        "The next one looks for a minute: `failed` if the pod lives; nothing is repeated; the budget is given back",
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
        "The same version, rules and driver: levels are at most 30 s old. Spent budget and open decisions are on disk",
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
        "`hold_off`, and then the blast radius is judged once: half of the workloads over open `blast_radius`",
        (D,),
    ),
    56: Row(
        "The config cannot be used",
        "Mode `observe` until it can (`config`); the level counts on",
        (D,),
    ),
    57: Row(
        "A limit is edited in the middle of a grace",
        "A limit above all counted usage sets the level to 0. Another limit that part of the counted usage is within "
        "warns the pod anew. While only the server reports an edit, and not yet the watch, the last look ends with "
        "`declaration_changed`",
        (D, A),
    ),
    58: Row(
        "An exemption, or a withdrawn consent, in the last moment",
        "It holds at once: `exempt`, `no_consent`, also in the last look",
        (D, A),
    ),
    59: Row(
        "The stop file appears while an action is in flight",
        "What was requested is watched to its end, and nothing new begins: `stopped`",
        (D, A),
    ),
    60: Row(
        "The disk is full, or the journal damaged",
        "What cannot be noted is not done: `journal`; of a damaged one everything counts as spent",
        (A,),
    ),
    61: Row(
        "The node reboots with an open breaker",
        "It is still open, and no budget is freed",
        (D, A),
    ),
    62: Row(
        "Every pod of the node is over at once",
        "After a change of ours: `blast_radius`. At other times one after the other, within the budgets",
        (D,),
    ),
    63: Row(
        "A limit in the wrong unit",
        "No limit where it cannot be meant (`limit_invalid`); where a new version or rule makes it, `blast_radius`",
        (S, D),
    ),
    64: Row(
        "A Job creates its evicted pod again and again",
        "`back_off`: one minute, doubling to ten, between two actions on its pods",
        (D,),
    ),
    65: Row(
        "A user or controller deletes the victim",
        "`terminating`, for ten minutes; then `deletion_stuck`, or `kill` where the ladder has it",
        (D, A),
    ),
    66: Row("The victim finishes in the last moment", "`not_running`: its object is not deleted", (D, A)),
    67: Row(
        "Managed memory (UVM), which no process list shows",
        "Unattributed: no container's usage includes it, and no pod is acted on for it",
        (S,),
    ),
    68: Row("Readings go backwards in time", "They add nothing", (D,)),
    69: Row(
        "Events cannot be written",
        "The counted time stays at `warn_after` for 60 s at most; then actions go on. Events are kept and written "
        "later, or dropped and counted",
        (A,),
    ),
    70: Row("A scrape is never read to its end", "Rounds and probes go on", (S,)),
    71: Row(
        "The daemon is not in the host's PID namespace",
        "Proven at the start, or nothing is attributed and no pod is judged: `pid_domain`",
        (S, D),
    ),
    72: Row(
        "A process forks or ends between the driver's list and the look at it",
        "It counts for its container if the process was seen alive there, else as ghost memory; never for another one",
        (S,),
    ),
    73: Row(
        "Enforcing would hit half of the node",
        "The preview says so; after a change of ours `blast_radius` opens before the first action",
        (D,),
    ),
    74: Row(
        "An admission policy that bounds evictions is removed",
        "A probe finds it: `admission`, and all pods are held until the policy is back",
        (A,),
    ),
}
