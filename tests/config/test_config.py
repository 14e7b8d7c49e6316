"""Flags over environment over file over defaults; what is wrong is refused with the place and the remedy."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import Arguments, Config, ConfigError, Policy, catalogue_of, load, parse_arguments, start
from exporter.config.loading import combine
from exporter.config.schema import LIVE, settings, switched_off
from exporter.config.values import Duration, ListenAddress
from exporter.limits import LeafDevice, resolve
from exporter.model import Collector, DeclaredPod, DeviceKey, GpuUuid


def of_file(text: str | bytes, *argv: str, **environ: str) -> Config:
    arguments = parse_arguments(["--config", "/etc/gpusteward/config.yaml", *argv], environ)
    return combine(arguments, text.encode() if isinstance(text, str) else text, "host")


def refusal(text: str | bytes, *argv: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        of_file(text, *argv, **environ)
    return str(caught.value).replace("/etc/gpusteward/", "")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "node:\nsampling: null\n", "log: {}\n"])
def test_an_empty_file_means_the_defaults(text: str) -> None:
    """What is not written, or null, has the documented default."""
    config = of_file(text)
    assert settings(config) == {
        "node.name": "host",
        "node.kubelet_root": Path("/var/lib/kubelet"),
        "node.host_root": Path("/host"),
        "node.pods_cgroup": None,
        "node.trust_pid_namespace": False,
        "sampling.interval": 5.0,
        "sampling.fast_interval": 0.5,
        "devices": "auto",
        **{f"collector.{name}": True for name in Collector},
        "names.source": "auto",
        "names.kubeconfig": None,
        "names.file": None,
        "limits.systems": "auto",
        "limits.fair_share": False,
        "limits.mps_scope": "report",
        "limits.first_seen_file": None,
        "limits.rows": [],
        "policy": Policy(),
        "metrics.workload_labels": "plain",
        "web.listen_address": ":9478",
        "web.probe_address": None,
        "web.config_file": None,
        "web.api": True,
        "log.level": "info",
        "log.format": "auto",
    }


def test_collectors_are_switched_off_as_in_node_exporter() -> None:
    """By a key or by `--no-collector.NAME`, and by a flag against the file; a name that is none is refused."""
    text = "collector: {ecc: false, process_utilization: false}"
    assert switched_off(of_file("").collector) == frozenset()
    assert switched_off(of_file(text).collector) == {Collector.ECC, Collector.PROCESS_UTILIZATION}
    assert switched_off(of_file(text, "--collector.process-utilization", "--no-collector.gpm").collector) == {
        Collector.ECC,
        Collector.GPM,
    }
    flags = [f"--no-collector.{name.replace('_', '-')}" for name in Collector]
    assert switched_off(of_file("", *flags).collector) == set(Collector)
    assert refusal("collector: {memory: false}").startswith("config.yaml: collector.memory: ")


def test_a_full_file_is_read() -> None:
    """Each key arrives as a value in our units; relative paths start at the folder of the file."""
    config = of_file("""
        node: {name: gpu-1, kubelet_root: /data/kubelet, host_root: /, trust_pid_namespace: true}
        sampling: {interval: 1m, fast_interval: 1.5s}
        devices: simulated
        names: {file: names.yaml}
        web: {listen_address: "127.0.0.1:0", config_file: /etc/web.yaml, api: false}
        log: {level: debug, format: console}
    """)
    assert config.node.name == "gpu-1"
    assert config.node.trust_pid_namespace is True
    assert (config.sampling.interval, config.sampling.fast_interval) == (60.0, 1.5)
    assert config.names.file == Path("/etc/gpusteward/names.yaml")
    assert config.web.config_file == Path("/etc/web.yaml")
    assert (config.web.listen_address.host, config.web.listen_address.port) == ("127.0.0.1", 0)
    assert config.web.api is False
    assert (config.devices, config.log.level, config.log.format) == ("simulated", "debug", "console")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sampling: {interval: 5 apples}",
            'config.yaml: sampling.interval: expected a duration such as "5s", got 5 apples',
        ),
        ("sampling: {interval: 5}", 'config.yaml: sampling.interval: expected a duration such as "5s", got 5'),
        ("sampling: {interval: -5s}", 'config.yaml: sampling.interval: expected a duration such as "5s", got -5s'),
        ("sampling: {interval: true}", 'config.yaml: sampling.interval: expected a duration such as "5s", got true'),
        ("sampling: {interval: [5s]}", 'config.yaml: sampling.interval: expected a duration such as "5s", got [5s]'),
        (
            "sampling: {interval: 5h}",
            "expected a duration from 100ms to 60s, got 5h; fix: correct the configuration; docs/reference/config.md",
        ),
        (
            "names: {source: file}",
            "names.file: expected a file, because names.source is file, got nothing",
        ),
        ("log: {level: [a, {b: c}]}", "log.level: expected debug or info or warning or error, got a list"),
        (
            "sampling: {interval: 99ms}",
            "config.yaml: sampling.interval: expected a duration from 100ms to 60s, got 99ms",
        ),
        ("sampling: {interval: 61s}", "config.yaml: sampling.interval: expected a duration from 100ms to 60s, got 61s"),
        (
            "sampling: {fast_interval: 6s}",
            "fast_interval: expected a duration from 50ms to sampling.interval, which is 5s, got 6s",
        ),
        (
            "sampling: {interval: 200ms, fast_interval: 500ms}",
            (
                "config.yaml: sampling.fast_interval: expected a duration from 50ms to sampling.interval, "
                "which is 200ms, got 500ms"
            ),
        ),
        ("sampling: 5s", "config.yaml: sampling: expected a mapping, got 5s"),
        (
            "devices: gpu",
            "config.yaml: devices: expected auto, simulated, recorded:FILE, or sources with commas between them: nvml,",
        ),
        ("log: {level: off}", "config.yaml: log.level: expected debug or info or warning or error, got false"),
        ("web: {api: 1}", "config.yaml: web.api: expected true or false, got 1"),
        ("names: {file: 7}", "config.yaml: names.file: expected a path, got 7"),
        ("names: {file: ''}", 'config.yaml: names.file: expected a path, got ""'),
        ("node: {name: 12}", "config.yaml: node.name: expected a node name, as text, got 12"),
        (
            "node: {name: 'a b'}",
            "config.yaml: node.name: expected a node name of 1 to 253 characters without spaces, got a b",
        ),
        ("node: {host_root: host}", "config.yaml: node.host_root: expected an absolute path, got host"),
        ("web: {listen_address: 9478}", 'web.listen_address: expected an address such as ":9478"'),
        ("web: {listen_address: ':99999'}", 'web.listen_address: expected an address such as ":9478"'),
        ("web: {listen_address: '::9478'}", 'web.listen_address: expected an address such as ":9478"'),
        ("web: {listen_address: '[::1%lo]:9478'}", "(without a zone), got [::1%lo]:9478"),
        (
            "sampling: {intervall: 5s}",
            'config.yaml: sampling.intervall: unknown key; fix: use "interval", or remove the key',
        ),
        ("smapling: {interval: 5s}", 'config.yaml: smapling: unknown key; fix: use "sampling", or remove the key'),
        ("limits: {systems: [hami, 7]}", "limits.systems: expected auto, or a list of systems of docs/systems.md"),
        (
            "limits: {systems: [hamy]}",
            "config.yaml: limits.systems: no system is called hamy; fix: use auto, or names of docs/systems.md",
        ),
        ("limits: {mps_scope: pod}", "config.yaml: limits.mps_scope: expected report or container, got pod"),
        ("limits: {rows: [5]}", "config.yaml: limits.rows: Expected `object`, got `int` - at `$[0]`"),
        ("limits: {rows: x}", "config.yaml: limits.rows: expected a list of systems with rows, got x"),
        ("limits: {rows: [{title: x}]}", "config.yaml: limits.rows: Object missing required field `system`"),
        ("limits: {rows: [{system: ours}]}", "config.yaml: limits.rows: $[0].title: a new system (ours) needs a title"),
        (
            "limits: {rows: [{system: kai, rows: [{mechanism: label, key: a, what: memory, unit: 0}]}]}",
            "config.yaml: limits.rows: $[0].rows[0].unit: 0 is no unit of memory",
        ),
        ("log: {colour: red}", "config.yaml: log.colour: unknown key; fix: use a known key: format, level"),
        ("polcy: {mode: enforce}", 'config.yaml: polcy: unknown key; fix: use "policy", or remove the key'),
        (
            "policy: {mode: on}",
            "config.yaml: policy.mode: expected off or observe or warn or dry-run or enforce, got true",
        ),
        ("policy: {grace: 120}", 'config.yaml: policy.grace: expected a duration such as "2m", got 120'),
        ("policy: {tolerance: {bytes: 1 GB}}", 'policy.tolerance.bytes: expected bytes as a quantity such as "256Mi"'),
        ("policy: {tolerance: {bytes: '1.5e0'}}", "policy.tolerance.bytes: expected bytes as a quantity"),
        (
            "policy: {budgets: {node: 3}}",
            'policy.budgets.node: expected a number of actions and a duration such as "3/10m"',
        ),
        ("policy: {budgets: {node: 3/0s}}", "policy.budgets.node: expected a number of actions and a duration"),
        ("policy: {ladder: [notify, shoot]}", "policy.ladder: expected a list of notify, fence, evict, kill"),
        ("policy: {namespaces: {label: yes-please}}", "policy.namespaces.label: expected a label such as"),
        (
            "policy: {protect: {namespace: [a]}}",
            'policy.protect.namespace: unknown key; fix: use "namespaces", or remove the key',
        ),
        ("policy: {stop_file: stop}", "config.yaml: policy.stop_file: expected an absolute path, got stop"),
        ("log: {level: info}\nlog: {level: debug}", 'config.yaml:2:1: the key "log" twice'),
        ("log:\n  level: info\n  level: info", 'config.yaml:3:3: the key "level" twice'),
        ("5: x", "config.yaml:1:1: a key that is not text; quote it"),
        ("on: x", "config.yaml:1:1: a key that is not text; quote it"),
        ("? [a]\n: x", "config.yaml:1:3: a key that is not text; quote it"),
        ("log:\n\tlevel: info", "config.yaml:2:1: a tab where YAML wants spaces"),
        ("- a\n- b", "config.yaml: expected keys with values, got [a, b]; fix: write `sampling: {interval: 5s}`"),
        ("just text", "config.yaml: expected keys with values"),
        ("log: {level: info", "config.yaml:1:"),
        ("a: 1\n---\nb: 2", "config.yaml:2:1: but found another document"),
        ("node: {name: !!python/object/apply:os.system [id]}", "config.yaml:1:14: a tag (!), which is not taken"),
        ("node: {name: 2025-13-45}", "config.yaml:1:14: expected a value of the kind timestamp"),
        ("node: {name: 2025-10-10}", "config.yaml: node.name: expected a node name, as text, got 2025-10-10"),
        (b"node: {name: \x00}", "config.yaml:1:14: a character that is not text (code 0)"),
        (b"node: {name: \xff}", "config.yaml: not UTF-8 text (byte 13)"),
        ("[" * 5000, "config.yaml:1:51: nested too deeply"),
        ("node: &n {name: *n}", "config.yaml:1:7: an anchor (&) or alias (*), which is not taken here"),
        ("node: {name: !!int ''}", "config.yaml:1:14: expected a value of the kind int"),
        ("node: {name: !!bool x}", "config.yaml:1:14: expected a value of the kind bool; quote it if it is text"),
        (f"node: {{name: 0x{'F' * 5000}}}", "config.yaml:1:14: "),
        ('names: {file: "a\\0b"}', 'config.yaml: names.file: expected a path, got "a\0b"'),
    ],
)
def test_what_is_wrong_is_refused_with_the_place_and_the_remedy(text: str | bytes, message: str) -> None:
    """An error names the file, the path of the key, what was expected and what was found."""
    assert message in refusal(text)


def test_limits_are_chosen() -> None:
    """Systems by a list or by commas, `off` and `on` as YAML reads them, own rows on top of the package's catalogue."""
    config = of_file("""
        limits:
          systems: [kai, ours]
          fair_share: on
          rows:
            - system: ours
              title: Ours
              rows: [{mechanism: annotation, key: example.com/mib, what: memory, unit: 1Mi}]
    """)
    assert (config.limits.systems.names, config.limits.fair_share) == (frozenset({"kai", "ours"}), True)
    assert of_file("limits: {fair_share: off}").limits == of_file("").limits
    assert of_file("", "--limits.systems=nos, kai").limits.systems.names == frozenset({"nos", "kai"})
    assert (of_file("").limits.systems.names, of_file("limits: {systems: []}").limits.systems.names) == (
        None,
        frozenset(),
    )
    (ours,) = [system for system in catalogue_of(config.limits) if system.name == "ours"]
    assert [row.key for row in ours.rows] == ["example.com/mib"]


def test_the_documented_rows_are_rows() -> None:
    """The example of docs/configuration.md is taken as it stands there, and declares what it says."""
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    example = next(part for part in text.split("```yaml\n")[1:] if part.startswith("limits:")).split("```")[0]
    annotated = DeclaredPod("u", "n", "p", annotations={"portal.example.com/gpu-mib": "512"})
    one = LeafDevice(DeviceKey(GpuUuid("GPU-1")), 0, memory=2**33)
    (limit,) = resolve(annotated, None, (one,), catalogue_of(of_file(example).limits)).limits
    assert (limit.bytes, limit.scope, limit.system) == (512 * 2**20, "pod", "our-portal")


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    """NODE_NAME comes from the pod's field reference and beats a file shared by all nodes; a flag beats both."""
    text = "node: {name: from-file}"
    assert of_file(text).node.name == "from-file"
    assert of_file(text, NODE_NAME="from-env").node.name == "from-env"
    assert of_file(text, "--node-name", "from-flag", NODE_NAME="from-env").node.name == "from-flag"
    assert of_file("", NODE_NAME="").node.name == "host"


def test_the_environment_names_the_config_file() -> None:
    """GPUSTEWARD_CONFIG is the default of --config, and an empty value is none."""

    def file(*argv: str, **environ: str) -> Path | None:
        return parse_arguments(argv, environ).config_file

    assert file(GPUSTEWARD_CONFIG="/etc/env.yaml") == Path("/etc/env.yaml")
    assert file("--config=/etc/flag.yaml", GPUSTEWARD_CONFIG="/etc/env.yaml") == Path("/etc/flag.yaml")
    assert file(GPUSTEWARD_CONFIG="") is None


def test_every_key_has_a_flag_and_every_flag_a_key() -> None:
    """What the file can say, the command line can say, and the other way round; but for rows and policy."""
    line = """
        --node-name a --node.kubelet-root /k --node.host-root /h --node.pods-cgroup /p --node.trust-pid-namespace
        --sampling.interval 10s --sampling.fast-interval 1s --devices nvml --names.file n.yaml --names.source file
        --names.kubeconfig k.yaml --limits.systems nos,kai --limits.fair-share --limits.mps-scope container
        --limits.first-seen-file f.json --mode warn
        --metrics.workload-labels exported
        --web.listen-address [::1]:80 --web.probe-address :81 --web.config.file w.yaml
        --no-web.api --log.level error --log.format json
    """
    line += " ".join(f"--no-collector.{name.replace('_', '-')}" for name in Collector)
    arguments = parse_arguments(line.split(), {})
    whole = combine(arguments, b"", "host")
    config, defaults = settings(whole), settings(combine(Arguments(), b"", "host"))
    assert set(arguments.overrides) == set(config) - {"limits.rows", "policy"} | {"policy.mode"}
    assert all(config[key] != defaults[key] for key in set(arguments.overrides) - {"policy.mode"})
    assert whole.policy.mode == "warn"
    assert config["names.file"] == Path("n.yaml")
    assert config["web.listen_address"] == "[::1]:80"


def test_the_probes_cannot_share_the_port() -> None:
    """The mistake is named when the config is read, not when the second listener fails."""
    told = refusal("web: {probe_address: ':9478'}")
    assert "web.probe_address: expected another port than web.listen_address has, which is :9478" in told


def test_a_wrong_flag_is_named_instead_of_the_file() -> None:
    """The operator is sent to the place where the mistake is."""
    told = refusal("", "--sampling.interval=5")
    assert told.startswith(
        '--sampling.interval: expected a duration such as "5s", got 5; fix: correct --sampling.interval'
    )
    assert refusal("", "--log.level=loud").startswith("--log.level: expected debug or")
    assert refusal("", "--mode=enforced").endswith("correct --mode; docs/reference/config.md describes policy.mode")
    assert refusal("", "--sampling.fast-interval=1ms").startswith("--sampling.fast-interval: expected a duration from")
    assert refusal("", NODE_NAME="a b").startswith("environment variable NODE_NAME: expected")


def test_a_flag_does_not_hide_a_mistake_in_the_file() -> None:
    """Else a wrong file would break on the day the flag goes."""
    assert "sampling.interval" in refusal("sampling: {interval: 7}", "--sampling.interval=5s")
    assert "sampling: expected a mapping" in refusal("sampling: 7", "--sampling.interval=5s")


@pytest.mark.parametrize("argv", [["--nope"], ["--conf", "x"], ["stray"], ["--log.level"]])
def test_wrong_usage_ends_with_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown and abbreviated flags are refused, not guessed."""
    with pytest.raises(SystemExit) as caught:
        parse_arguments(argv, {})
    assert caught.value.code == 2
    assert "\nfix: see gpusteward-exporter --help" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    """Missing, a folder, a device, or far too large: one sentence each."""
    missing, large, device = tmp_path / "missing.yaml", tmp_path / "large.yaml", Path("/dev/null")
    large.write_bytes(b"#" * (2 << 20))
    for path, why in [
        (missing, "no such file or directory; fix: name a file that this user can read"),
        (tmp_path, "is a directory; fix: name the file in this folder"),
        (device, "not a regular file; fix: name a regular file; a pipe or a device is not read"),
        (large, "larger than 1048576 bytes; fix: name a file of at most 1048576 bytes"),
    ]:
        with pytest.raises(ConfigError, match=why):
            load(Arguments(config_file=path))


def test_the_host_name_in_lower_case_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet registers the host name in lower case, and so do we."""
    monkeypatch.setattr("socket.gethostname", lambda: "GPU-7.Example")
    assert load(Arguments()).node.name == "gpu-7.example"


def test_live_keys_exist() -> None:
    """The list of keys that a reload applies names real keys."""
    assert set(settings(of_file(""))) > LIVE


@given(st.binary(max_size=200) | st.text("{}[]:,-#&*!|>'\"%@`\t\n aelogvinfdsmp0159", max_size=80).map(str.encode))
def test_any_bytes_are_a_config_or_a_config_error(content: bytes) -> None:
    """Whatever stands in the file, nothing but ConfigError comes out."""
    with suppress(ConfigError):
        assert combine(Arguments(), content, "host").node.name


@given(st.floats(0.1, 60))
def test_a_duration_reads_as_it_was_written(seconds: float) -> None:
    """Durations in error messages can be written back into the file."""
    milliseconds = round(seconds * 1000)
    config = of_file(f"sampling: {{interval: {milliseconds}ms, fast_interval: 50ms}}")
    assert config.sampling.interval == pytest.approx(milliseconds / 1000)
    again = of_file(f"sampling: {{interval: {config.sampling.interval}, fast_interval: 50ms}}")
    assert again.sampling.interval == pytest.approx(milliseconds / 1000, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [(":9478", "", 9478), ("127.0.0.1:0", "127.0.0.1", 0), ("[::]:80", "::", 80), ("localhost:1", "localhost", 1)],
)
def test_listen_addresses(text: str, host: str, port: int) -> None:
    """The forms that Prometheus' own servers take."""
    address = ListenAddress(text)
    assert (address.host, address.port) == (host, port)
    assert of_file("", f"--web.listen-address={text}").web.listen_address == text


def test_durations_know_how_to_be_written() -> None:
    """Below a second in milliseconds, else in seconds."""
    assert (str(Duration(0.05)), str(Duration(5)), str(Duration(1.5))) == ("50ms", "5s", "1.5s")


def test_the_default_of_the_fast_interval_follows_a_short_interval() -> None:
    """With an interval of 200 ms the second key may be left out. Where both are written, they must fit together."""
    short = combine(Arguments(overrides={"sampling.interval": "200ms"}), b"", "n")
    assert (short.sampling.interval, short.sampling.fast_interval) == (0.2, 0.2)
    with pytest.raises(ConfigError, match=r"sampling\.fast_interval"):
        combine(Arguments(), b"sampling: {interval: 200ms, fast_interval: 1s}", "n")


def test_a_recording_is_a_source_of_devices() -> None:
    """Its path starts at the file's folder, or where the daemon started if a flag says it; others are refused."""
    written = Arguments(Path("/etc/gpusteward/config.yaml"))
    assert combine(written, b"devices: recorded:r.gz", "h").devices.recording == Path("/etc/gpusteward/r.gz")
    assert combine(written, b"devices: recorded:/tmp/r.gz", "h").devices.recording == Path("/tmp/r.gz")
    assert combine(parse_arguments(["--devices=recorded:r.gz"], {}), b"", "h").devices.recording == Path("r.gz")
    assert combine(Arguments(), b"devices: nvml", "h").devices.recording is None
    for wrong in ("recorded:", "recording:x", "recorded"):
        with pytest.raises(ConfigError, match="devices: expected auto, simulated, recorded:FILE, or sources with"):
            combine(Arguments(), f"devices: '{wrong}'".encode(), "h")


def test_devices_are_named_by_commas() -> None:
    """`auto` asks for all that is there; names may have blanks; an unknown name is refused with a list of all names."""
    assert combine(Arguments(), b"", "h").devices.names is None
    assert combine(Arguments(), b"devices: simulated", "h").devices.names is None
    assert combine(Arguments(), b"devices: nvml", "h").devices.names == frozenset({"nvml"})
    assert combine(parse_arguments(["--devices=drm, dcmi"], {}), b"", "h").devices.names == frozenset({"drm", "dcmi"})
    for wrong in ("nvml,", "nvml,auto", "nvml;drm", "simulated,nvml", "NVML"):
        with pytest.raises(ConfigError, match=r"devices: expected auto, simulated, .* nvml, kfd, drm, .*, got"):
            combine(Arguments(), f"devices: '{wrong}'".encode(), "h")


def test_a_recording_leaves_this_nodes_memory_alone() -> None:
    """What a recorded node's pods declared first does not come into the file of this one."""
    flags = ["--devices=recorded:r", "--limits.first-seen-file=f"]
    with pytest.raises(ConfigError, match="first-seen-file: expected no file, because devices plays a recording"):
        combine(parse_arguments(flags, {}), b"", "h")


@pytest.mark.parametrize("word", ["on", "ON", "yes", "true", "True"])
def test_a_switch_may_stand_in_quotes(word: str) -> None:
    """Templates and Helm's --set-string write switches as text: `fair_share: "on"` switches it on, and "off" off."""
    assert of_file(f'limits: {{fair_share: "{word}"}}').limits.fair_share
    config = of_file('{node: {trust_pid_namespace: "yes"}, web: {api: "off"}, policy: {protect: {bare_pods: "no"}}}')
    assert (config.node.trust_pid_namespace, config.web.api, config.policy.protect.bare_pods) == (True, False, False)


def test_off_without_quotes_is_the_word() -> None:
    """`mode: off` is false to YAML, and a mode to people; a word that is no switch stays refused."""
    assert of_file("policy: {mode: off}").policy.mode == "off"
    assert "expected off or observe" in refusal("policy: {mode: on}")
    assert "expected true or false, got perhaps" in refusal("limits: {fair_share: perhaps}")


NEWER = """
sampling: {interval: 7s, jitter: 1s}
tracing: {endpoint: x}
policy: {mode: enforce, grace: 3m, protect: {images: [a], namespaces: [b]}}
"""


def started(folder: Path, text: str, *argv: str) -> tuple[Config, ConfigError | None]:
    file = folder / "config.yaml"
    file.write_text(text)
    return start(parse_arguments([f"--config={file}", *argv], {}))


@pytest.mark.parametrize("flags", [(), ("--log.level=debug",)])
def test_a_daemon_starts_with_what_it_knows_of_a_newer_file(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """All known keys are in force, whatever stands beside them; of the policy the mode is `observe`."""
    config, refused = started(tmp_path, NEWER, *flags)
    assert refused is not None and "unknown key" in str(refused) and str(tmp_path / "config.yaml") in str(refused)
    assert (config.sampling.interval, config.policy.grace) == (7.0, 180.0)
    assert config.policy.protect.namespaces == ["b"]
    assert (config.policy.mode, config.log.level) == ("observe", "debug" if flags else "info")
    assert started(tmp_path, NEWER.replace("enforce", "off"))[0].policy.mode == "off"


def test_a_key_of_an_older_version_is_refused_with_what_replaces_it(tmp_path: Path) -> None:
    """The daemon starts and observes; the refusal is that of `load`."""
    config, refused = started(tmp_path, "policy: {mode: enforce, strikes: 3, grace: 3m}")
    assert "policy.strikes was removed in 0.2" in str(refused) and "policy.warn_after" in str(refused)
    assert (config.policy.mode, config.policy.grace) == ("observe", 180.0)


def test_a_file_that_is_known_as_a_whole_starts_as_it_is(tmp_path: Path) -> None:
    """Nothing is lowered without a refusal."""
    config, refused = started(tmp_path, "policy: {mode: enforce}")
    assert (config.policy.mode, refused) == ("enforce", None)
    assert config == load(parse_arguments([f"--config={tmp_path / 'config.yaml'}"], {}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("web: {config_fil: users.yml}", "web.config_fil: unknown key"),
        ("wbe: {config_file: users.yml}", "wbe: unknown key"),
        ("Web: {config_file: users.yml}", "Web: unknown key"),
        ("tracing: {}\nlog: {level: loud}", "log.level: expected"),
        ("log: {level: loud, colour: red}", "log.level: expected"),
        ("tracing: {}\nlimits: {rows: [{title: x}]}", "limits.rows: Object missing"),
        ("tracing: {", "config.yaml:1:"),
    ],
)
def test_no_daemon_starts_with_another_mistake(tmp_path: Path, text: str, told: str) -> None:
    """A wrong value, and what may be meant to keep strangers out, refuse the file as a whole."""
    with pytest.raises(ConfigError, match=told):
        started(tmp_path, text)
