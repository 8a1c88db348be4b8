"""Building and loading a kernel with an expression: one kernel, architecture, dtype and head size, by
content.

The lock of the build makes processes that want the same one wait for the first. A library is loaded so that
the binding of attention, which is in another one, finds its symbol (cuda/attention/expressed.h).
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fusescope.core.errors import BuildError
from fusescope.core.machine import toolchain
from fusescope.core.machine.toolchain import Toolchain
from fusescope.kernels import cache, figures, link, ninja, plan, report
from fusescope.kernels.lock import builder

FAMILY = "attention"
_DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}  # FusescopeDtype
_loaded: dict[Wanted, str] = {}
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Wanted:
    """header: the text that the kernel is compiled with; impl: its name; arch: None for a CPU kernel."""

    header: str
    impl: str
    arch: str | None
    dtype: str
    head_dim: int

    @property
    def title(self) -> str:
        """Such as "v4_scheduled with score + slope[h] * (k - q)"; the header's first line is the
        expression."""
        return f"{self.impl} with {self.header.partition(chr(10))[0].removeprefix('// ')}"


def loaded(wanted: Wanted) -> str | None:
    """The name by which attention_expressed knows the kernel in this process; None before ``load``."""
    return _loaded.get(wanted)


def load(wanted: Iterable[Wanted], log: Callable[[str], None] | None = None) -> list[str]:
    """The names of these kernels, compiled, where they are in no cache, and loaded. BuildError where a
    compiler is missing or fails; ValueError for a kernel that does not exist or not for this
    architecture."""
    wanted, log = list(wanted), log or logging.getLogger("fusescope.build").info
    with _one_at_a_time:
        if missing := [one for one in dict.fromkeys(wanted) if one not in _loaded]:
            chain = toolchain.detect()
            items = [_object(chain, one) for one in missing]
            _build(chain, missing, items, log)
            for one, item in zip(missing, items):
                path = report.folder_of(chain) / link.library_name(chain, item.unit, [item])
                os.utime(path)  # the time of last use, which is what pruning goes by
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
                _loaded[one] = _name(item)
    return [_loaded[one] for one in wanted]


def _object(chain: Toolchain, wanted: Wanted) -> plan.Object:
    """What to compile: the object of the family's own build with the expression's header, under another
    name."""
    unit = "cuda" if wanted.arch else "cpu"
    items = plan.objects(chain, (unit,), (wanted.arch,) if wanted.arch else (), (FAMILY,))
    item = next((i for i in items if i.name == wanted.impl), None)
    if item is None:
        raise ValueError(
            f"there is no {unit} kernel {wanted.impl} of {FAMILY} for {wanted.arch or 'the CPU'}"
        )
    expression = wanted.header.partition("\n")[2]  # without its text, which may be written in several ways
    content = repr((item.key, expression, wanted.dtype, wanted.head_dim))
    key = hashlib.sha256(content.encode()).hexdigest()[:20]
    symbol = f"fusescope_{FAMILY}__{wanted.impl}__{key}" + (f"__{wanted.arch}" if wanted.arch else "")
    flags = [flag for flag in item.flags if not flag.startswith("-DFUSESCOPE_SYMBOL=")]
    flags += [
        f"-DFUSESCOPE_SYMBOL={symbol}",
        "-I.",  # the build folder
        f'-DFUSESCOPE_SCORE="{_header_name(key)}"',
        f"-DFUSESCOPE_SCORE_DTYPE={_DTYPES[wanted.dtype]}",
        f"-DFUSESCOPE_SCORE_HEAD_DIM={wanted.head_dim}",
    ]
    return dataclasses.replace(item, family=f"{FAMILY}_score", flags=tuple(flags), keep=symbol, key=key)


def _header_name(key: str) -> str:
    return f"{FAMILY}_score-{key}.h"


def _name(item: plan.Object) -> str:
    return f"{item.name}__{item.key}"


def _build(chain: Toolchain, wanted: list[Wanted], items: list[plan.Object], log) -> None:
    """Compile and link what is in no library yet."""
    folder = report.folder_of(chain)

    def missing() -> list[tuple[Wanted, plan.Object]]:
        names = [link.library_name(chain, item.unit, [item]) for item in items]
        return [pair for *pair, name in zip(wanted, items, names) if not (folder / name).is_file()]

    if not missing():
        return
    _require(chain, items)
    begin = time.monotonic()
    with builder(folder, log, lambda: False):
        cache.sweep(folder)
        todo = missing()  # another process may have built them meanwhile
        for one, item in todo:
            log(f"compiling {one.title}")
            (folder / _header_name(item.key)).write_text(one.header)
        absent = [item for _, item in todo if not (folder / item.file).is_file()]
        if absent:
            ninja.compile_missing(
                chain, folder, absent, lambda text: None, lambda: False, lambda *progress: None
            )
            figures.write(folder, [i for i in absent if (folder / i.file).is_file()], ninja.seconds(folder))
        for one, item in todo:
            _link(chain, folder, one, item)
    if todo:
        log(f"compiled {', '.join(one.title for one, _ in todo)} in {time.monotonic() - begin:.1f} s")


def _link(chain: Toolchain, folder: Path, wanted: Wanted, item: plan.Object) -> None:
    status, error = report.status_of(folder, item)
    if status != "built":
        output = figures.text_of((folder / item.file).with_suffix(".failed"))
        raise BuildError(f"{wanted.title} does not compile: {error}", log=output)
    if _object(chain, wanted).key != item.key:  # the compiler may have read it half new
        (folder / item.file).unlink()
        raise BuildError(f"{wanted.title}: its source was edited while it was compiled; call again")
    _, dropped = link.link(chain, folder, item.unit, [item])
    if dropped:
        raise BuildError(f"{wanted.title} does not link: {report.status_of(folder, item)[1]}")


def _require(chain: Toolchain, items: list[plan.Object]) -> None:
    needed = {"ninja": chain.ninja, "g++": chain.gxx}
    if any(item.unit == "cuda" for item in items):
        needed["nvcc, the CUDA compiler,"] = chain.nvcc
    if absent := [name for name, there in needed.items() if not there]:
        raise BuildError(
            f"{' and '.join(absent)} missing: a score expression cannot be compiled into a kernel "
            "(fusescope doctor)"
        )
