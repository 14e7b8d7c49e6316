"""Promises of enforcer/journal: nothing that happens to the bytes of a journal allows a further action."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import run

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from default_rules import default_rules
from enforcer.actions.interface import Answer, Heard
from enforcer.journal.fold import UNKNOWN, Kept, after, changes, pruned, replayed, void
from enforcer.journal.records import (
    Acked,
    BreakerClosed,
    BreakerOpened,
    Ended,
    Intent,
    Record,
    Sent,
    Started,
    State,
    Stopped,
    decode,
    digest,
    encode,
)
from enforcer.policy.history import History, Opened, Result, Spent
from enforcer.policy.vocabulary import Breaker, Mode, Rung
from journals import BOOT, FENCE, LATER, STORY, Writing, action, intent, uuid
from pace import spread

MOST = 3
WHOLE = Writing().write(*STORY)


def kept(data: bytes, boot: float = 500.0, boot_id: str = BOOT) -> Kept:
    return replayed(data, boot, boot_id, most=MOST).kept


def test_what_was_written_is_read() -> None:
    """Tokens with their times, breakers and decisions without an end come back as they were."""
    reading = replayed(WHOLE.data, 500.0, BOOT, most=MOST)
    assert (reading.torn, reading.damaged, reading.seq) == (False, False, len(STORY))
    assert reading.whole == len(WHOLE.data)
    assert [(one.at, one.workload[2], one.time) for one in reading.kept.spent] == [
        (103.0, "train", 1.7e9 + 103.0),
        (108.0, "other", 1.7e9 + 108.0),
        (111.0, "train", 1.7e9 + 111.0),
    ]
    assert reading.kept.breakers == {}
    assert {name: (one.sent, one.at, one.action.restored()) for name, one in reading.kept.open.items()} == {
        uuid(2): (True, 108.0, action(2, workload="other")),
        uuid(3): (False, 111.0, action(3, rung=Rung.KILL)),
    }
    assert reading.kept.problems == ()
    assert reading.kept.fences == {FENCE.key: FENCE}


def test_a_fence_is_gone_after_a_reboot() -> None:
    """It went with its cgroup. A journal of a version that knew no fences has none."""
    assert kept(WHOLE.data, boot=5.0, boot_id=LATER).fences == {}
    assert kept(Writing().write(State()).data.replace(b',"fences":[]', b"")).fences == {}


def test_an_open_breaker_is_read() -> None:
    """A breaker that was not closed is open, with its words."""
    assert kept(b"".join(WHOLE.lines[:9])).breakers == {Breaker.INTERNAL: Opened(110.0, 'a "no",\nin a row')}


def test_what_was_answered_is_read() -> None:
    """An answer stays with its decision until that has ended."""
    writing = Writing().write(State(), intent(1), Acked(uuid(1), Answer(Heard.EVACUATING, "soon", 429, 10.0)))
    assert kept(writing.data).open[uuid(1)].answer == Answer(Heard.EVACUATING, "soon", 429, 10.0)


@pytest.mark.parametrize("result", Result, ids=str)
def test_every_end_ends(result: Result) -> None:
    """After any end a decision is not in flight, and its token stays taken, unless certainly nothing was done."""
    found = kept(Writing().write(State(), intent(1), intent(2), Sent(uuid(1)), Ended(uuid(1), result)).data)
    assert list(found.open) == [uuid(2)]
    assert len(found.spent) == (1 if result.harmless else 2)


def test_ambiguous_is_no_end() -> None:
    """What may have happened stays in flight."""
    assert uuid(1) in kept(Writing().write(State(), intent(1), Acked(uuid(1), Answer(Heard.AMBIGUOUS))).data).open


def test_state_stands_for_all_before() -> None:
    """What is kept, written as one record, is read as the same."""
    for count in range(1, len(STORY) + 1):
        found = kept(b"".join(WHOLE.lines[:count]), 150.0)
        assert kept(Writing().write(found.state("rewritten")).data, 150.0) == found


def test_lines_are_json(tmp_path: Path) -> None:
    """Each line is a JSON object of its own, as jq wants it, and says what and when in plain words."""
    read = [json.loads(line) for line in WHOLE.data.splitlines()]
    assert [one["record"] for one in read][:4] == ["state", "started", "intent", "sent"]
    assert read[2] | {"action": None} == {
        "sum": read[2]["sum"],
        "seq": 3,
        "boot_id": BOOT,
        "boottime": 103.0,
        "time": 1.7e9 + 103.0,
        "record": "intent",
        "decision": uuid(1),
        "action": None,
        "mode": "enforce",
        "rules": "0123456789abcdef",
    }
    assert read[2]["action"]["pod"] == "train-1"


# --- torn -------------------------------------------------------------------------------------------------------------


def truth(records: tuple[Record, ...]) -> tuple[int, set[str]]:
    """Count the tokens that were taken, and name the decisions without an end."""
    intents = [one for one in records if isinstance(one, Intent)]
    ends = {one.decision for one in records if isinstance(one, Ended)}
    return len(intents), {one.decision for one in intents} - ends


@pytest.mark.parametrize("last", range(1, len(STORY)))
def test_torn_at_any_byte(last: int) -> None:
    """Wherever the last record ends (CI tries each byte), all before it counts; what may be an intent is charged."""
    begin = len(b"".join(WHOLE.lines[:last]))
    _, open_ = truth(STORY[:last])
    size = len(WHOLE.lines[last])
    for cut in [*spread(range(size - 1), 3), size - 1]:
        reading = replayed(WHOLE.data[: begin + cut], 500.0, BOOT, most=MOST)
        assert not reading.damaged
        assert reading.torn is (cut > 0)
        whole = cut == size - 1  # all but the end of the line
        told = truth(STORY[: last + whole])
        charged = len(reading.kept.spent) - told[0]
        if cut == 0 or whole:
            assert charged == 0
        elif isinstance(STORY[last], Intent):
            assert charged == 1
        else:
            assert charged in (0, 1)  # as long as it may be an intent
        assert set(reading.kept.open) == (told[1] if whole else open_)
        if cut > 0 and not whole:
            assert reading.kept.problems == (f"the last record was torn off after {cut} bytes",)
            assert reading.whole == begin


def test_a_torn_intent_is_charged_now_and_to_the_node() -> None:
    """Whose token it was is lost with it: the node pays, from the reading on."""
    found = kept(Writing().write(State(), intent(1)).data[:-40], 777.0)
    assert found.spent == (Spent(777.0, UNKNOWN),)


def test_a_torn_answer_costs_nothing() -> None:
    """What was torn off and was certainly no intent is not charged."""
    found = kept(Writing().write(State(), intent(1), Acked(uuid(1), Answer(Heard.ACCEPTED, "x" * 99))).data[:-40])
    assert len(found.spent) == 1
    assert uuid(1) in found.open


def test_a_torn_beginning_is_damage() -> None:
    """A file is put in place with its first line whole: one that is not, or is empty, lost something that counted."""
    for size in range(len(WHOLE.lines[0])):
        reading = replayed(WHOLE.data[:size], 500.0, BOOT, most=MOST)
        assert reading.damaged
        assert reading.kept.spent == (Spent(500.0, UNKNOWN),) * MOST


# --- damaged ----------------------------------------------------------------------------------------------------------


def test_any_byte_that_changes_is_found() -> None:
    """Whichever byte is another, the file is damaged: all is forfeit, and a person has to look at it. CI tries each."""
    lot, told = random.Random(1), truth(STORY)
    for place, was in spread(list(enumerate(WHOLE.data)), 11):
        for other in {was ^ 1 << lot.randrange(8), lot.choice((0, 10, was ^ 0x20))} - {was}:
            reading = replayed(WHOLE.data[:place] + bytes([other]) + WHOLE.data[place + 1 :], 500.0, BOOT, most=MOST)
            assert reading.damaged, (place, other)
            assert Breaker.JOURNAL in reading.kept.breakers
            # One token may be illegible; so many are charged on top.
            assert len(reading.kept.spent) >= told[0] - 1 + MOST
            assert sum(one.workload == UNKNOWN and one.at == 500.0 for one in reading.kept.spent) == MOST


@pytest.mark.parametrize(
    "wrong",
    [
        lambda lines: lines[:3] + lines[4:],
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: lines[1:],
        lambda lines: [*lines[:4], b"\n", *lines[4:]],
        lambda lines: [b"\0" * 4096, *lines],
        lambda lines: [*lines, b"\0" * 4096],
        lambda lines: [*lines, b"{}\n"],
    ],
    ids=["missing", "twice", "exchanged", "headless", "blank", "zeros before", "zeros after", "foreign"],
)
def test_what_no_torn_write_explains_is_damage(wrong: Callable[[list[bytes]], list[bytes]]) -> None:
    """Lines that are missing, doubled, exchanged or foreign: damaged, or (zeros at the end) taken for a torn record."""
    reading = replayed(b"".join(wrong(WHOLE.lines)), 500.0, BOOT, most=MOST)
    assert reading.damaged or (reading.torn and len(reading.kept.spent) == truth(STORY)[0] + 1)


def test_of_a_damaged_file_everything_that_binds_counts() -> None:
    """A line in the middle is another; the open decisions and breakers of all other lines still hold."""
    lines = [*WHOLE.lines[:8], b"?" + WHOLE.lines[8][1:]]
    found = kept(b"".join([*lines, WHOLE.lines[10]]))
    assert set(found.open) == {uuid(2), uuid(3)}
    assert set(found.breakers) == {Breaker.INTERNAL, Breaker.JOURNAL}
    assert found.problems == ("a line is not as it was written",)


def test_a_record_of_a_newer_version_is_damage() -> None:
    """A whole line of an unknown kind may have charged the budget: a person has to look at it."""
    stranger = Writing().write(State(), Started(1, "9")).lines
    body = stranger[1].replace(b'"started"', b'"wound_up"')
    from zlib import crc32

    line = b'{"sum":"%08x",' % crc32(body[18:-1]) + body[18:]
    assert replayed(stranger[0] + line, 500.0, BOOT, most=MOST).damaged


@settings(max_examples=3 * settings().max_examples)
@given(st.binary(max_size=400), st.integers(0, len(WHOLE.data)), st.integers(0, len(WHOLE.data)), st.floats())
def test_reading_is_total(noise: bytes, first: int, last: int, boot: float) -> None:
    """Any bytes, alone or in place of some of a journal, and any clock are an answer."""
    replayed(noise, boot, BOOT, most=MOST)
    replayed(WHOLE.data[:first] + noise + WHOLE.data[last:], boot, LATER, most=MOST)


@pytest.mark.parametrize(
    "text",
    [
        b'{"sum":"%08x",' + b"[" * 100_000,
        b'{"seq":1e400,"boot_id":"","boottime":1,"time":1,"record":"stopped"}',
        b'{"seq":1,"boot_id":"","boottime":-1,"time":1,"record":"stopped"}',
        b'{"seq":-1,"boot_id":"","boottime":1,"time":1,"record":"stopped"}',
        b'{"seq":1,"boot_id":"","boottime":1,"time":1,"record":"stopped","x":' + b"[" * 100_000,
        b'{"seq":1,"boot_id":"\xff","boottime":1,"time":1,"record":"stopped"}',
    ],
    ids=["deep", "huge", "before", "negative", "deep inside", "no text"],
)
def test_a_right_sum_is_no_reason_to_believe(text: bytes) -> None:
    """Nonsense with a right checksum is still nonsense: it is refused, and no error is raised."""
    from zlib import crc32

    rest = text[1:]
    assert decode(b'{"sum":"%08x",' % crc32(rest) + rest) is None


@pytest.mark.parametrize(("text", "read"), [("\ud800!", "?!"), ("x" * 200_000, "x" * 1000)], ids=["no text", "book"])
def test_texts_from_the_world_are_written_all_the_same(text: str, read: str) -> None:
    """A server's answer may be no text, or very long: it is cut and cleaned, and the record can be read again."""
    writing = Writing().write(State(), intent(1), Acked(uuid(1), Answer(Heard.REFUSED, text, 403)))
    assert kept(writing.data).open[uuid(1)].answer == Answer(Heard.REFUSED, read, 403)
    assert len(writing.lines[2]) < 2000


# --- reboots ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault(61)
def test_a_reboot_frees_no_budget_and_closes_no_breaker() -> None:
    """An action two seconds before the machine went down was two seconds ago when it is up: no more is proven."""
    writing = Writing().write(State(), intent(1), BreakerOpened(Breaker.INTERNAL, Opened(103.0, "?")))
    writing.write(Stopped())
    found = kept(writing.data, 30.0, LATER)
    assert [one.at for one in found.spent] == [-2.0]
    assert found.breakers == {Breaker.INTERNAL: Opened(-1.0, "?")}


def test_time_that_is_proven_counts_over_reboots() -> None:
    """Each boot's own time makes a token older, the time between two boots does not."""
    writing = Writing().write(State(), intent(1))
    writing.boottime = 5000.0
    writing.write(Stopped()).reboot().write(Started(1, ""))
    writing.boottime = 3000.0
    writing.write(Stopped())
    # 5001 - 102 in the first boot, 3001 in the second, and what went by in the third
    assert [one.at for one in kept(writing.data, 10.0, "third").spent] == [102.0 - 5001.0 - 3001.0]
    assert [one.at for one in kept(writing.data, 3100.0, LATER).spent] == [102.0 - 5001.0]


def test_reboots_end_processes_and_not_pods() -> None:
    """A killed container's victim is void after a reboot; an evicted pod may still be there."""
    writing = Writing().write(State(), intent(1), intent(2, rung=Rung.KILL), intent(3, rung=Rung.FENCE))
    same, other = kept(writing.data), kept(writing.data, 5.0, LATER)
    assert [void(one) for one in same.open.values()] == [False, False, False]
    assert [void(one) for one in other.open.values()] == [False, True, True]
    assert [one.at for one in other.open.values()] == [-2.0, -1.0, 0.0]
    # The next daemon of that boot, too, reads from the state that they are of another one.
    again = kept(Writing(LATER, 10.0).write(other.state()).data, 20.0, LATER)
    assert [void(one) for one in again.open.values()] == [False, True, True]


@pytest.mark.fault(22)
def test_the_wall_clock_decides_nothing() -> None:
    """Unix times of any size change no age: they are kept beside the tokens, for what is compared with pods."""
    import msgspec

    told = []
    for wall in (0.0, -1e12, 1e300):
        found = [decode(line[:-1]) for line in WHOLE.lines]
        data = b"".join(encode(msgspec.structs.replace(one[0], time=wall), one[1]) for one in found if one is not None)
        reading = kept(data)
        assert {token.time for token in reading.spent} == {wall}
        told.append(replace(reading, spent=tuple(replace(token, time=0.0) for token in reading.spent)))
    expected = kept(WHOLE.data)
    assert told == [replace(expected, spent=tuple(replace(token, time=0.0) for token in expected.spent))] * 3


def test_a_clock_that_went_back_frees_nothing() -> None:
    """A token from the future is one of now."""
    assert [one.at for one in kept(WHOLE.data, 50.0).spent] == [50.0] * 3


# --- the fold ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_takes_no_token() -> None:
    """A dry intent, which version 0.1 wrote, is no action in flight and no token."""
    assert kept(Writing().write(State(), intent(1, dry=True)).data) == Kept()


def test_words_on_nothing_change_nothing() -> None:
    """Answers and ends of decisions that are not open leave all as it was."""
    for record in (Sent("?"), Acked("?", Answer(Heard.ACCEPTED)), Ended("?", Result.STUCK)):
        assert after(Kept(), record, 1.0) == Kept()


def test_old_tokens_are_forgotten() -> None:
    """What is older than any window goes; open decisions and breakers stay however old they are."""
    found = after(replace(kept(WHOLE.data), breakers={Breaker.INTERNAL: Opened(1.0, "")}), intent(9), 5000.0)
    left = pruned(found, 5010.0, 100.0)
    assert [one.at for one in left.spent] == [5000.0]
    assert (left.breakers, left.open) == (found.breakers, found.open)


def test_changes_of_a_history_are_records() -> None:
    """Breakers that opened, and those that a person closed; tokens stand in the intents."""
    before = History(breakers={Breaker.JOURNAL: Opened(1.0, "?")}, spent=(Spent(1.0, UNKNOWN),))
    now = History(breakers={Breaker.INTERNAL: Opened(2.0, "?")})
    assert [*changes(before, now, by="ann")] == [
        BreakerOpened(Breaker.INTERNAL, now.breakers[Breaker.INTERNAL]),
        BreakerClosed(Breaker.JOURNAL, "ann"),
    ]
    assert [*changes(now, now)] == []


# --- what version 0.1 wrote -------------------------------------------------------------------------------------------


def line(body: str) -> bytes:
    """Write a line by hand, with its sum."""
    from zlib import crc32

    rest = body[1:].encode()
    return b'{"sum":"%08x",' % crc32(rest) + rest + b"\n"


def stamped(seq: int, record: str) -> bytes:
    return line(f'{{"seq":{seq},"boot_id":"{BOOT}","boottime":{100.0 + seq},"time":1.7e9,{record}}}')


WORKLOAD = '["team","Job","x"]'
OLD_STATE = (
    f'"record":"state","spent":[{{"at":90.0,"workload":{WORKLOAD},"dry":false}},'
    f'{{"at":91.0,"workload":{WORKLOAD},"dry":true}}],'
    '"breakers":{"api":{"at":1.0,"until":null,"detail":"403"},"internal":{"at":2.0,"until":null,"detail":"?"}},'
    f'"strikes":[{{"record":"struck","workload":{WORKLOAD},"strikes":{{"count":2.5,"at":1.0}}}}],"open":{{}},'
    '"detail":"made","fences":[],"excesses":[]'
)


def test_an_old_state_is_read() -> None:
    """Spent budget counts, but not that of dry runs. Breakers that are gone, `struck` and excesses are ignored."""
    reading = replayed(stamped(1, OLD_STATE), 500.0, BOOT, most=MOST)
    assert not reading.damaged
    assert reading.kept.spent == (Spent(90.0, ("team", "Job", "x")),)
    assert reading.kept.breakers == {Breaker.INTERNAL: Opened(2.0, "?")}


@pytest.mark.parametrize("name", ["api", "config", "effectiveness", "sampler"])
def test_an_old_breaker_is_no_damage(name: str) -> None:
    """It was opened and closed by version 0.1: read, and counts for nothing."""
    opened = f'"record":"breaker_opened","breaker":"{name}","opened":{{"at":1.0,"until":null,"detail":"?"}}'
    data = stamped(1, OLD_STATE) + stamped(2, opened)
    data += stamped(3, f'"record":"breaker_closed","breaker":"{name}","by":"ann","detail":""')
    reading = replayed(data, 500.0, BOOT, most=MOST)
    assert not reading.damaged and set(reading.kept.breakers) == {Breaker.INTERNAL}


def test_a_breaker_that_no_version_knows_is_damage() -> None:
    """A later version wrote it: a person looks at the journal."""
    opened = '"record":"breaker_opened","breaker":"gravity","opened":{"at":1.0,"detail":"?"}'
    assert replayed(stamped(1, OLD_STATE) + stamped(2, opened), 500.0, BOOT, most=MOST).damaged


def test_old_strikes_and_excesses_are_read() -> None:
    """Records of kinds that are not written any more: no damage, and nothing of them is kept."""
    key = '{"pod_uid":"u","container":"main","container_id":"c","claim":"","uuid":"GPU-0","gpu_instance":-1}'
    data = Writing().write(State()).data
    data += stamped(2, f'"record":"struck","workload":{WORKLOAD},"strikes":{{"count":2.5,"at":1.0}}')
    data += stamped(3, f'"record":"exceeds","key":{key},"strikes":1.0')
    data += stamped(4, f'"record":"within","key":{key}')
    reading = replayed(data, 500.0, BOOT, most=MOST)
    assert (reading.damaged, reading.seq, reading.kept) == (False, 4, Kept())


# --- the rules --------------------------------------------------------------------------------------------------------


def test_the_digest_is_of_the_rules_alone() -> None:
    """Another process names the same rules alike, and other rules otherwise."""
    import sys

    code = (
        "from enforcer.journal.records import digest; from enforcer.runtime.policy_config import rules_of; "
        "from exporter.config import Arguments, load; print(digest(rules_of(load(Arguments()))))"
    )
    root = str(Path(__file__).resolve().parents[2])
    told = run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    assert told == digest(default_rules())
    assert digest(default_rules(mode=Mode.ENFORCE)) != told
    assert len(told) == 16


# --- whatever is written, wherever it ends ----------------------------------------------------------------------------

_NUMBERS = st.integers(1, 5)
_RECORDS = st.one_of(
    _NUMBERS.map(intent),
    _NUMBERS.map(lambda n: Sent(uuid(n))),
    _NUMBERS.map(lambda n: Acked(uuid(n), Answer(Heard.ACCEPTED))),
    _NUMBERS.map(lambda n: Acked(uuid(n), Answer(Heard.AMBIGUOUS, "?"))),
    st.builds(lambda n, result: Ended(uuid(n), result), _NUMBERS, st.sampled_from(Result)),
    st.sampled_from(Breaker).map(lambda which: BreakerOpened(which, Opened(1.0, ""))),
    st.sampled_from(Breaker).map(lambda which: BreakerClosed(which, "ann")),
    st.just(Stopped()),
    st.just("reboot"),
    st.just("rewrite"),
)


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(st.lists(_RECORDS, max_size=20), st.floats(0.0, 1.0), st.floats(0.0, 1e6))
def test_whatever_was_written_binds(records: list[Record | str], share: float, boot: float) -> None:
    """
    Any records are written, reboots and rewritings among them, and the file is cut anywhere.

    The actions of whole records stay charged to the budget for at least as long as they must. Each decision without an
    end is open, and so is each breaker that no person closed.
    """
    writing, boots = Writing().write(State()), 1
    taken: list[float] = []  # real ages: seconds of uptime since, which the test alone knows
    began: dict[str, float] = {}
    open_: set[str] = set()
    breakers: set[Breaker] = set()
    steps: list[tuple[int, list[float], set[str], set[Breaker], str]] = []
    steps.append((len(writing.data), [], set(), set(), writing.boot))
    uptime = 0.0
    for record in records:
        if record == "reboot":
            boots += 1
            uptime += 1000.0  # until it went down, and while it was down: it cannot be proven
            writing.reboot(f"boot-{boots}")
            continue
        if record == "rewrite":
            now = kept(writing.data, writing.boottime + 1, writing.boot)
            again = Writing(writing.boot, writing.boottime, writing.seq).write(now.state())
            writing, steps = again, []
        elif isinstance(record, Record):
            writing.write(record)
        uptime += 1.0
        match record:
            case Intent(decision):
                taken, began[decision] = [*taken, uptime], uptime
                open_ = open_ | {decision}
            case Ended(decision, result):
                if decision in open_ and result.harmless:
                    taken = [at for at in taken if at != began[decision]]
                open_ = open_ - {decision}
            case BreakerOpened(which):
                breakers = breakers | {Breaker(which)}
            case BreakerClosed(which):
                breakers = breakers - {Breaker(which)}
            case _:
                pass
        steps.append((len(writing.data), [uptime - one for one in taken], open_, breakers, writing.boot))
    begin = steps[0][0]
    cut = begin + round(share * (len(writing.data) - begin))
    # Of the last record only the end of its line may be missing: it is there.
    _, ages, still, broken, name = [one for one in steps if one[0] - 1 <= cut][-1]
    reading = replayed(writing.data[:cut], boot, "the next boot", most=MOST)
    assert not reading.damaged
    found = reading.kept
    charged = sorted((boot - one.at for one in found.spent), reverse=True)
    assert len(charged) >= len(ages)
    for known, real in zip(charged, sorted(ages, reverse=True), strict=False):
        assert known <= real + boot + 1e-6
    assert still <= set(found.open)
    assert broken <= set(found.breakers)
    here = replayed(writing.data[:cut], 1e7, name, most=MOST).kept
    assert still <= set(here.open) and len(here.spent) >= len(ages)
