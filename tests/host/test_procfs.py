"""Promises of exporter/host: which process a number is, read from real processes, and from trees that show rarities."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.base.cgroup_owner import USUAL
from exporter.host import procfs
from exporter.host.pid_domain import INITIAL
from exporter.host.procfs import ProcFs, proc_root
from exporter.host.stat import Stat, parse_stat, parse_tgid
from exporter.model import ContainerId, HostProcess, Owner, PodUid, ProcessKey
from patience import PATIENCE

REAL = ProcFs(Path("/proc"), trusted=True)
POD, MAIN = PodUid("2c48913c-b29f-11e7-9350-020968147796"), ContainerId("9" * 64)
POD_LINE = f"0::/kubepods/pod{POD}/{MAIN}\n"
IN_POD, ON_HOST = Owner(((POD, MAIN),)), Owner()
EXITING, RUNNING = 0x00408404, 0x0040800A


def stat_line(
    pid: int, *, name: str = "python", state: str = "S", flags: int = RUNNING, threads: int = 1, start: int = 7
) -> str:
    """A line of /proc/<pid>/stat as Linux 6 writes it, in the fields that matter."""
    middle = f"{state} 1 1 1 0 -1 {flags} 100 0 0 0 0 0 0 0 20 0 {threads} 0 {start}"
    return f"{pid} ({name}) {middle} 3133440 414 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"


# --- the two records --------------------------------------------------------------------------------------------------


@given(name=st.text(st.characters(exclude_categories=()), max_size=15), start=st.integers(0, 2**64 - 1))
def test_a_name_decides_nothing_in_stat(name: str, start: int) -> None:
    """Whatever a process calls itself, its state, threads and start are those of the kernel."""
    line = stat_line(7, name=name, state="R", threads=3, start=start)
    assert parse_stat(line) == Stat("R", exiting=False, threads=3, start_ticks=start)


@pytest.mark.parametrize("name", ["foo) Z 1 2", ") Z 1 1 1 0 -1 4 1 1 1 1 1 1 1 1 1 1 9 0 1", "(", ")", "a\nb", ""])
def test_names_that_look_like_fields(name: str) -> None:
    """Brackets, spaces, line feeds and whole records inside of a name."""
    assert parse_stat(stat_line(7, name=name)) == Stat("S", exiting=False, threads=1, start_ticks=7)


@pytest.mark.parametrize("text", ["", "1 (x)", "1 (x) S 1 2 3", "1 (x) S " + "a " * 30, "\x00" * 50, POD_LINE])
def test_what_is_no_stat_raises_value_error(text: str) -> None:
    """A record that no kernel wrote is not read as some process."""
    with pytest.raises(ValueError, match=r"stat|invalid literal"):
        parse_stat(text)


@pytest.mark.parametrize(
    ("state", "threads", "alive"),
    [
        *((state, threads, True) for state in "RSDTtI" for threads in (1, 9)),
        *((state, threads, False) for state in "ZXx" for threads in (0, 1)),
        ("Z", 2, True),
    ],
)
def test_who_is_alive(state: str, threads: int, alive: bool) -> None:
    """A zombie is dead, unless it is only the leader of threads that live."""
    assert parse_stat(stat_line(7, state=state, threads=threads)).alive is alive


@pytest.mark.parametrize(
    "name", ["python", "a\\nTgid:\\t1", "x\rTgid:\t1", "x\x0bTgid:\t1", "x\u2028Tgid:\t1", "Tgid:\t1"]
)
def test_a_name_decides_nothing_in_status(name: str) -> None:
    """The kernel escapes the line feed; no other character ends a line."""
    assert parse_tgid(f"Name:\t{name}\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\nNgid:\t0\nPid:\t4712\n") == 4711


@pytest.mark.parametrize(
    "text", ["", "Name:\tx\n", "Name:\tx\nTgid:\n", "Name:\tx\nTgid:\tx\n", "Name:\tx\nTgid:\t\u0661\n"]
)
def test_what_is_no_status_raises_value_error(text: str) -> None:
    """Without a number there is no process."""
    with pytest.raises(ValueError, match="Tgid"):
        parse_tgid(text)


# --- real processes ---------------------------------------------------------------------------------------------------


def until(condition: Callable[[], bool], within: float = PATIENCE) -> None:
    """Wait for a condition, which is looked at every few milliseconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]


@contextmanager
def python(script: str) -> Iterator[int]:
    """A Python process that runs `script`, up to where that prints; ended afterwards."""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


def test_ourselves() -> None:
    """Our own number: alive, with the start time and the cgroup that the files show."""
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    owner = USUAL.owner(Path("/proc/self/cgroup").read_text())
    found = REAL.sample([os.getpid()])
    assert found.processes == {os.getpid(): HostProcess(ProcessKey(os.getpid(), start), alive=True, owner=owner)}
    assert found.unreadable == frozenset()
    assert found.faults == ()
    assert found.living is None


def test_a_thread_is_its_process() -> None:
    """The driver may print the id of the thread that opened the device: the answer is about the process."""
    done = threading.Event()
    ids: list[int] = []

    def work() -> None:
        ids.append(threading.get_native_id())
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(lambda: bool(ids))
        found = REAL.sample([ids[0], os.getpid()]).processes
        assert ids[0] != os.getpid()
        assert found[ids[0]] == found[os.getpid()]
        assert found[ids[0]].key.pid == os.getpid()
    finally:
        done.set()
        thread.join()
    until(lambda: ids[0] not in REAL.sample([ids[0]]).processes)  # join returns before the kernel's thread has ended


def test_a_zombie_is_not_alive() -> None:
    """Ended, and not yet waited for: it has a number and nothing else. Waited for: it is gone."""
    process = subprocess.Popen(["true"])
    try:
        until(lambda: state_of(process.pid) == "Z")
        found = REAL.sample([process.pid])
        assert found.processes[process.pid].alive is False
        assert found.processes[process.pid].key.pid == process.pid
        assert found.unreadable == frozenset()
    finally:
        process.wait()
    assert REAL.sample([process.pid]).processes == {}


def test_a_dead_leader_of_living_threads_is_alive() -> None:
    """Its main thread has ended, the others go on: the process lives, in the cgroup in which they are."""
    script = """
import ctypes, os, threading
threading.Thread(target=lambda: os.read(0, 1)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    owner = USUAL.owner(Path("/proc/self/cgroup").read_text())
    with python(script) as pid:
        until(lambda: state_of(pid) == "Z")
        found = REAL.sample([pid]).processes[pid]
        assert found.alive
        assert found.owner == owner


def test_a_forked_child_is_another_process() -> None:
    """Same name, same cgroup, another key; once it is waited for, it is gone and its parent is not."""
    with python("import os\nif os.fork():\n print('ready', flush=True)\nos.read(0, 1)") as pid:
        until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text() != "")
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        found = REAL.sample([pid, child]).processes
        assert found[pid].key != found[child].key
        assert found[pid].owner == found[child].owner
        os.kill(child, signal.SIGKILL)
        until(lambda: state_of(child) == "Z")
        assert not REAL.sample([child]).processes[child].alive


def test_a_hostile_name_on_a_real_process() -> None:
    """A process that calls itself dead is alive, and keeps its number."""
    script = "open('/proc/self/comm', 'wb').write(b') Z 1\\nTgid: 1'); print('ready', flush=True); input()"
    with python(script) as pid:
        assert ") Z 1" in Path(f"/proc/{pid}/stat").read_text()
        found = REAL.sample([pid]).processes[pid]
        assert found.alive
        assert found.key.pid == pid


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**31, 2**64])
def test_numbers_that_nobody_can_have(pid: int) -> None:
    """A number that the driver prints is not trusted to be a process's: such numbers give no process."""
    found = REAL.sample([pid])
    assert found.processes == {}
    assert found.unreadable == frozenset()


def test_the_living_have_owners() -> None:
    """All living processes of the node are seen, ourselves among them."""
    living = REAL.sample([], want_living=True).living
    assert living is not None
    assert USUAL.owner(Path("/proc/self/cgroup").read_text()) in living


def test_an_opened_folder_outlives_no_process() -> None:
    """Once the process is gone its opened folder gives nothing, so that two lives cannot mix in one answer."""
    process = subprocess.Popen(["sleep", "60"])
    with procfs._folder(Path("/proc"), process.pid) as folder:
        assert procfs._read(folder, "stat").startswith(f"{process.pid} (sleep)")
        process.kill()
        process.wait()
        for name in ("stat", "status", "cgroup"):
            with pytest.raises((FileNotFoundError, ProcessLookupError)):
                procfs._read(folder, name)


# --- other PID namespaces ---------------------------------------------------------------------------------------------


TOLD = """
from pathlib import Path
from exporter.host.procfs import ProcFs
found = ProcFs(Path("/proc")).sample([1], want_living=True)
print(found.pid_domain_proven, dict(found.processes), found.living)
print(*found.faults)
"""
TRUSTED = """
from pathlib import Path
from exporter.host.procfs import ProcFs
found = ProcFs(Path("/proc"), trusted=True).sample([1])
print(found.pid_domain_proven, list(found.processes), found.faults)
"""
REUSED = """
import os, signal
from pathlib import Path
from exporter.host import procfs

def child():
    if pid := os.fork():
        return pid
    signal.pause()

first = child()
with procfs._folder(Path("/proc"), first) as folder:
    before = procfs._read(folder, "stat")
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
    second = child()
    try:
        print("mixed", procfs._read(folder, "cgroup"))
    except (FileNotFoundError, ProcessLookupError):
        found = procfs.ProcFs(Path("/proc"), trusted=True).sample([first]).processes
        print("apart", first == second, bool(before), found[first].alive)
os.kill(second, signal.SIGKILL)
os.waitpid(second, 0)
"""
SCRIPTS = (TOLD, TRUSTED, REUSED)
BETWEEN = "--- the next script ---\n"
IN_TURN = f"""
import sys, traceback
sys.path.insert(0, sys.argv[1])
for script in sys.argv[2:]:
    try:
        exec(script, {{}})
    except Exception:
        traceback.print_exc(file=sys.stdout)
    print({BETWEEN!r}, end="", flush=True)
"""


@cache
def in_a_pid_namespace() -> Mapping[str, str]:
    """
    Run each script in number 1 of a new PID namespace with a `/proc` of its own; what each printed.

    One process runs them all, one after the other: it takes 0.1 s to begin.
    """
    unshare = [
        "unshare",
        *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
        "--pid",
        "--fork",
        "--mount-proc",
    ]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        reason = "this machine lets us make no PID namespace (neither root nor user namespaces): not tried"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    path = str(Path(procfs.__file__).parents[2])
    command = [*unshare, sys.executable, "-c", IN_TURN, path, *SCRIPTS]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
    return dict(zip(SCRIPTS, printed.split(BETWEEN)[:-1], strict=True))


def test_another_pid_namespace_is_told_and_nobody_named() -> None:
    """In a container without hostPID numbers mean others: nothing is read, and the fault says what to set."""
    printed = in_a_pid_namespace()[TOLD]
    assert printed.startswith("False {} None\n")
    assert re.search(r"pid_domain_unproven.*hostPID: true.*node\.trust_pid_namespace", printed)


def test_an_operators_word_replaces_the_proof() -> None:
    """On a nested node the numbers are those of its own namespace, and are read when an operator says so."""
    assert in_a_pid_namespace()[TRUSTED] == "True [1] ()\n"


@pytest.mark.fault(42)
def test_a_reused_number_is_not_the_process_that_was_opened() -> None:
    """The kernel gives a number anew while its old folder is open: the folder gives nothing, a new look the new one."""
    assert in_a_pid_namespace()[REUSED] == "apart True True True\n"


def test_the_proof_holds_in_the_initial_namespace_only() -> None:
    """On this machine the proof says what the kernel's constant says."""
    found = ProcFs(Path("/proc")).sample([os.getpid()])
    assert found.pid_domain_proven is (str(Path("/proc/self/ns/pid").readlink()) == INITIAL)
    assert found.pid_domain_proven is (found.faults == ())


# --- trees ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """A folder in the form of /proc."""

    root: Path

    def source(self, *, trusted: bool = False) -> ProcFs:
        return ProcFs(self.root, trusted=trusted, own=self.root)

    def add(
        self, pid: int, stat: str | None = None, *, cgroup: str | bytes = POD_LINE, tgid: int | None = None
    ) -> Path:
        folder = self.root / str(pid)
        (folder / "task").mkdir(parents=True)
        (folder / "stat").write_text(stat or stat_line(pid))
        (folder / "status").write_text(f"Name:\tpython\nTgid:\t{tgid or pid}\nPid:\t{pid}\n")
        (folder / "cgroup").write_bytes(cgroup if isinstance(cgroup, bytes) else cgroup.encode())
        return folder

    def add_thread(self, pid: int, tid: int, stat: str | None = None, *, cgroup: str = POD_LINE) -> Path:
        """A thread as the kernel shows it: below its process, and also at the top."""
        below = self.root / str(pid) / "task" / str(tid)
        below.mkdir(parents=True)
        (below / "stat").write_text(stat or stat_line(tid))
        (below / "cgroup").write_text(cgroup)
        return below


@pytest.fixture
def tree() -> Iterator[Tree]:
    """An empty tree in which we are shown to be in the initial PID namespace; open to an unprivileged user."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    (root / "self/ns").mkdir(parents=True)
    (root / "1").mkdir()
    for pid in ("self", "1"):
        (root / pid / "stat").write_text(stat_line(1))
    (root / "self/ns/pid").symlink_to(INITIAL)
    yield Tree(root)
    shutil.rmtree(root)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Become an unprivileged user for a while, where we are root: root is denied nothing."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_process_of_a_tree(tree: Tree) -> None:
    """The root is an argument: nothing of the machine's own /proc is in the answer."""
    tree.add(10)
    found = tree.source().sample([10, 11], want_living=True)
    assert found.processes == {10: HostProcess(ProcessKey(10, 7), alive=True, owner=IN_POD)}
    assert found.living == frozenset({IN_POD})
    assert found.pid_domain_proven


@pytest.mark.fault(72)
@pytest.mark.parametrize("name", ["status", "stat", "cgroup"])
def test_a_process_that_goes_while_it_is_read_is_gone(tree: Tree, name: str) -> None:
    """Whatever file is the first to be missing: no process, nothing unreadable, no fault."""
    (tree.add(10) / name).unlink()
    found = tree.source().sample([10])
    assert found.processes == {}
    assert found.unreadable == frozenset()
    assert found.faults == ()


@pytest.mark.parametrize("name", ["stat", "cgroup"])
def test_who_goes_while_all_are_looked_at_is_not_among_the_living(tree: Tree, name: str) -> None:
    """A process that ends meanwhile is no reason to doubt the others."""
    (tree.add(10, cgroup=f"0::/kubepods/pod{POD}\n") / name).unlink()
    tree.add(11)
    found = tree.source().sample([], want_living=True)
    assert found.living == frozenset({IN_POD})
    assert found.faults == ()


@pytest.mark.parametrize("name", ["status", "stat"])
def test_a_hidden_process_is_unreadable_not_gone(tree: Tree, name: str) -> None:
    """Permission denied is no proof of death: the number is named, and the fault says why."""
    (tree.add(10) / name).chmod(0)
    tree.add(11)
    with unprivileged():
        found = tree.source().sample([10, 11])
    assert found.unreadable == {10}
    assert found.processes.keys() == {11}
    (fault,) = found.faults
    assert (fault.source, fault.reason, fault.incomplete) == ("host", "processes_unreadable", True)
    assert fault.message == f"cannot read {tree.root}/10: Permission denied"


def test_a_hidden_cgroup_leaves_the_process_known(tree: Tree) -> None:
    """It lives, and its owner is unknown: other facts may still say. A fault reports it, and the round is complete."""
    (tree.add(10) / "cgroup").chmod(0)
    with unprivileged():
        found = tree.source().sample([10])
    assert found.processes == {10: HostProcess(ProcessKey(10, 7), alive=True, owner=None)}
    assert found.unreadable == frozenset()
    assert [fault.incomplete for fault in found.faults] == [False]


@pytest.mark.parametrize("name", ["status", "stat"])
@pytest.mark.parametrize("text", ["", "garbage", "\x00" * 9000])
def test_a_record_that_no_kernel_wrote_is_unreadable(tree: Tree, name: str, text: str) -> None:
    """Nothing is made up from text that cannot be read."""
    (tree.add(10) / name).write_text(text)
    found = tree.source().sample([10])
    assert found.unreadable == {10}
    assert len(found.faults) == 1


def test_two_threads_are_one_process(tree: Tree) -> None:
    """Two numbers of the driver's, one key."""
    tree.add(10)
    for tid in (11, 12):
        tree.add(tid, stat_line(tid, start=99), tgid=10, cgroup="0::/\n")
        tree.add_thread(10, tid)
    found = tree.source().sample([11, 12]).processes
    assert found[11] == found[12] == HostProcess(ProcessKey(10, 7), alive=True, owner=IN_POD)


def test_a_thread_that_left_its_process_while_it_was_read_is_gone(tree: Tree) -> None:
    """The number of the process was given to another process in between: that one has no such thread."""
    tree.add(10)
    tree.add(11, tgid=10)
    assert tree.source().sample([11]).processes == {}
    assert tree.source().sample([11]).unreadable == frozenset()


def test_names_are_bytes(tree: Tree) -> None:
    """No UTF-8 in a folder's name, and a file longer than one read: it is read to its end, and the pair stands."""
    tree.add(10, cgroup=b"2:memory:/" + b"\xff\xfe" * 40_000 + f"\n{POD_LINE}".encode())
    assert tree.source().sample([10]).processes[10].owner == IN_POD


def test_an_exiting_task_is_nobodys(tree: Tree) -> None:
    """cgroup v1 moves who exits to `/`: that is not the host, it is not known. On v2 it keeps its path."""
    tree.add(10, stat_line(10, state="D", flags=EXITING), cgroup="4:memory:/\n0::/\n")
    tree.add(11, stat_line(11, state="Z", flags=EXITING), cgroup="4:memory:/\n0::/\n")
    tree.add(12, stat_line(12, state="Z", flags=EXITING))
    tree.add(13, cgroup="4:memory:/\n")
    found = tree.source().sample([10, 11, 12, 13], want_living=True)
    assert found.living == frozenset({ON_HOST})
    assert {pid: (process.alive, process.owner) for pid, process in found.processes.items()} == {
        10: (True, None),
        11: (False, None),
        12: (False, IN_POD),
        13: (True, ON_HOST),
    }


def test_living_threads_know_the_cgroup_of_a_dead_leader(tree: Tree) -> None:
    """Of a leader that exits the first thread is asked that does not; those gone in between are passed over."""
    tree.add(10, stat_line(10, state="Z", flags=EXITING, threads=3), cgroup="4:memory:/\n")
    tree.add_thread(10, 10, stat_line(10, state="Z", flags=EXITING), cgroup="4:memory:/\n")
    (tree.add_thread(10, 11) / "stat").unlink()
    tree.add_thread(10, 12)
    tree.add(99, cgroup="4:memory:/\n")
    found = tree.source().sample([10], want_living=True)
    assert found.processes[10] == HostProcess(ProcessKey(10, 7), alive=True, owner=IN_POD)
    assert found.living == frozenset({IN_POD, ON_HOST})


def test_the_dead_are_not_among_the_living(tree: Tree) -> None:
    """A zombie alone explains no memory; a living member of its container does."""
    tree.add(10, stat_line(10, state="Z", flags=EXITING))
    assert tree.source().sample([], want_living=True).living == frozenset()
    tree.add(11)
    (tree.root / "sys").mkdir()
    assert tree.source().sample([], want_living=True).living == frozenset({IN_POD})


def test_who_cannot_be_looked_at_is_told_in_a_look_at_all(tree: Tree) -> None:
    """The living may be incomplete: that is said."""
    for pid in (10, 11, 12):
        (tree.add(pid) / "cgroup").chmod(0)
    with unprivileged():
        found = tree.source().sample([], want_living=True)
    assert found.living == frozenset()
    assert found.faults[0].message.endswith(": Permission denied (and 2 more)")


def test_nothing_but_three_files_is_opened(tree: Tree) -> None:
    """No descriptors, mappings, program or environment of a process: these would need SYS_PTRACE."""
    folder = tree.add(10)
    for name in ("fd", "maps", "exe", "environ", "mem", "root", "cwd"):
        (folder / name).symlink_to(name)  # to itself: following it fails
    found = tree.source().sample([10], want_living=True)
    assert found.processes[10].alive
    assert found.faults == ()


@pytest.mark.fault(71)
@pytest.mark.parametrize("namespace", ["pid:[4026532345]", "pid:[40265318360]", "4026531836", None])
@pytest.mark.parametrize("where", ["root", "own"])
def test_without_proof_nothing_is_read(tree: Tree, tmp_path: Path, namespace: str | None, where: str) -> None:
    """Both the /proc that is read and our own must show the initial namespace; else the fault names the file."""
    tree.add(10)
    other = tmp_path / "other"
    (other / "self/ns").mkdir(parents=True)
    (other / "1").mkdir()
    for pid in ("self", "1"):
        (other / pid / "stat").touch()
    if namespace:
        (other / "self/ns/pid").symlink_to(namespace)
    if where == "root":
        shutil.copytree(tree.root / "10", other / "10")
    source = ProcFs(other, own=tree.root) if where == "root" else ProcFs(tree.root, own=other)
    found = source.sample([10], want_living=True)
    assert not found.pid_domain_proven
    assert found.processes == {}
    assert found.living is None
    (fault,) = found.faults
    assert (fault.source, fault.reason, fault.incomplete) == ("host", "pid_domain_unproven", True)
    assert f"{other}/self/ns/pid is {namespace or 'not readable'}" in fault.message
    assert "hostPID: true" in fault.message


def test_trust_does_not_replace_a_missing_proc(tmp_path: Path) -> None:
    """Where no /proc is mounted all would look dead: an operator's trust in the numbers does not cover that."""
    found = ProcFs(tmp_path, trusted=True).sample([1], want_living=True)
    assert not found.pid_domain_proven
    assert found.faults[0].reason == "pid_domain_unproven"
    assert f"{tmp_path} shows no processes" in found.faults[0].message


@pytest.mark.parametrize("trusted", [False, True])
def test_a_proc_that_hides_others_is_no_proof_that_they_are_dead(tree: Tree, trusted: bool) -> None:
    """With hidepid=2 only our own processes have folders. Each namespace has a number 1; here it is missing."""
    tree.add(10)
    (tree.root / "1/stat").unlink()
    found = tree.source(trusted=trusted).sample([10, 11])
    assert not found.pid_domain_proven
    assert found.processes == {}
    assert "hides the processes of others" in found.faults[0].message
    assert "hidepid" in found.faults[0].message


def test_the_hosts_proc_is_read_where_it_is_mounted(tree: Tree, tmp_path: Path) -> None:
    """A mounted procfs below the host's root is chosen; an empty folder there, or none, is not."""
    assert proc_root(tmp_path) == Path("/proc")
    (tmp_path / "proc").mkdir()
    assert proc_root(tmp_path) == Path("/proc")
    shutil.copytree(tree.root, tmp_path / "proc", symlinks=True, dirs_exist_ok=True)
    assert proc_root(tmp_path) == tmp_path / "proc"
    assert proc_root(Path("/")) == Path("/proc")
