"""Compile the fake vendor libraries: the C sources in c/ go in, a folder with one library a variant comes out.

Law: that of `compiling`: what is found is what would be built.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from compiling import compiled

SOURCES: Final = Path(__file__).parent / "c"

_STRICT: Final = ("-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
_SHARED: Final = ("-shared", "-fPIC", "-fvisibility=hidden")

VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ixml": ("nvml_like.c", "-DIXML"),
    "ixml-v3": ("nvml_like.c", "-DIXML", "-DIXML_V3"),
    "efml": ("nvml_like.c", "-DEFML"),
    "efml-uuid": ("nvml_like.c", "-DEFML", "-DWITH_UUID"),
    "mxsml": ("nvml_like.c", "-DMXSML"),
    "mxsml-own": ("nvml_like.c", "-DMXSML", "-DWITHOUT_PROCESSES"),
    "xpuml": ("nvml_like.c", "-DXPUML"),
    "hgml": ("nvml_like.c", "-DHGML"),
    "hgml-bare": ("nvml_like.c", "-DHGML", "-DWITHOUT_PROCESSES"),
    "dcmi": ("dcmi.c",),
    "cndev": ("cndev.c",),
    "mtml": ("mtml.c",),
    "rsmi": ("rsmi.c",),
}
"""Source and definitions of each. `ixml` has the old process list alone, `hgml-bare` none, `mxsml-own` its own;
`efml-uuid` has the older half of the library, too."""


HOLDER: Final = "holder"
"""A static program that keeps the device nodes open that its arguments name, until it is ended."""

_NAMES: Final[Mapping[str, str]] = {"rsmi": "librocm_smi64.so"}
"""Files that are not called after their source."""


def build(cache_dir: Path) -> Path:
    """Return the folder that holds `<variant>/lib<name>.so` and `holder`, compiling when the sources are new.

    Raises subprocess.CalledProcessError (with the compiler's words in its note) when they do not compile.
    """
    inputs = [Path(__file__), *SOURCES.glob("*.[ch]")]
    return compiled(cache_dir, "fake-libraries", inputs=inputs, commands=_commands)


def file_name(variant: str) -> str:
    """Name the file of a variant as the vendor calls it."""
    name = variant.partition("-")[0]
    return _NAMES.get(name, f"lib{name}.so")


def _commands(folder: Path) -> Iterator[list[str]]:
    yield ["gcc", *_STRICT, "-static", "-o", str(folder / HOLDER), str(SOURCES / "holder.c")]
    for variant, (source, *definitions) in VARIANTS.items():
        (folder / variant).mkdir(mode=0o755)
        # Without a SONAME: else a library that one test has loaded would be found by its name in the tests after it.
        output = str(folder / variant / file_name(variant))
        yield ["gcc", *_STRICT, *_SHARED, *definitions, "-o", output, str(SOURCES / source), str(SOURCES / "state.c")]
