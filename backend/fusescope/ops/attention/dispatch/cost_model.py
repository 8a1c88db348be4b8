"""The cost model that ``impl="auto"`` chooses a kernel by: its time on one GPU model as a sum of non-negative
prices (microseconds) for what it does (counts.py), fitted to measured records (fitting.py).

Few query tiles (up to one per multiprocessor) and some (up to four) have prices of their own; of more, those
with wide heads (above 64 columns) do: twice the columns take less than twice the time. A case where another
kernel than the predicted one was measured to be the fastest takes that kernel. Relative errors are minimised:
a microsecond counts as much at ten as ten at a hundred. A fit is a JSON file per GPU model; those made here
(``fusescope chooser --fit``), in the build cache, come before those shipped in fits/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from fusescope.core import paths, whole_files
from fusescope.ops.attention.dispatch.counts import Counts, features_of
from fusescope.ops.attention.dispatch.kernel_sources import group

SHIPPED = Path(__file__).parent / "fits"
_KINDS = {  # both 16-bit types run the same instructions
    "float32": "float32",
    "float16": "16 bit",
    "bfloat16": "16 bit",
}
# Query tiles per multiprocessor up to which kernels share a tile among warpgroups, in more ways or fewer.
_FEW, _SOME = 1, 4
# Predictions within this ratio say nothing about which kernel is faster: that which suits most masks is
# taken. With it the choice takes 1.006 times the time of the best kernel on average in cross-validation,
# 1.010 without, on an H200; 1.006 and 1.007 on an H100.
_TIE = 1.02
_SOME_NARROW = ", some tiles"
_SOME_WIDE = f"{_SOME_NARROW}, wide heads"


def kind_of(dtype: str, done: Counts, sms: int) -> str:
    """Which prices hold for a case: those of its dtype, and of few, some or many query tiles, some and many
    of wide heads apart."""
    if done.blocks <= _FEW * sms:
        return f"{_KINDS[dtype]}, few tiles"
    some = _SOME_NARROW if done.blocks <= _SOME * sms else ""
    return _KINDS[dtype] + some + (", wide heads" if done.panels > 1 else "")


@dataclass(frozen=True)
class Fit:
    """Prices of each kernel on one GPU model: prices[kind][impl] in the order of features_of(impl), kind "16
    bit" or "float32", each also with ", few tiles", ", some tiles" and ", wide heads". Some tiles of wide
    heads have the prices of narrow ones where none were measured.

    runs: the recorded runs it was fitted to; sources: hash of each kernel's source as measured; records: how
    many were used. corrections[kind][key of a work]: the kernel that was measured to be the fastest where it
    is not the predicted one.
    """

    device: str
    sms: int
    prices: Mapping[str, Mapping[str, Sequence[float]]]
    runs: Sequence[str]
    sources: Mapping[str, str]
    records: int
    corrections: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def microseconds(self, dtype: str, done: Counts) -> dict[str, float]:
        """Predicted kernel time of every fitted kernel, fastest first."""
        prices = self.prices_for(dtype, done)
        known = {impl: p for impl, p in prices.items() if done.counted(impl)}
        times = {impl: float(done.features(impl, self.sms) @ np.asarray(p)) for impl, p in known.items()}
        return dict(sorted(times.items(), key=lambda item: item[1]))

    def prices_for(self, dtype: str, done: Counts) -> Mapping[str, Sequence[float]]:
        """Those of each kernel that was measured on such cases."""
        kind = kind_of(dtype, done, self.sms)
        return self.prices.get(kind) or self.prices.get(kind.replace(_SOME_WIDE, _SOME_NARROW), {})

    def choose(self, dtype: str, done: Counts, among: Iterable[str]) -> str | None:
        """The kernel of the least predicted time among those named, of several about equal ones that which
        suits most masks, or the one that was measured to be faster; None where none of them is fitted."""
        allowed = set(among)
        times = {impl: us for impl, us in self.microseconds(dtype, done).items() if impl in allowed}
        better = self.corrections.get(kind_of(dtype, done, self.sms), {}).get(done.key)
        if better in times or not times:
            return better if times else None
        ties = [impl for impl, us in times.items() if us <= _TIE * min(times.values())]
        return max(ties, key=lambda impl: _suits(impl, done))


def _suits(impl: str, done: Counts) -> tuple[int, int]:
    """Greatest of what suits most masks: the last of the ladder, but with narrow heads groups of two rather
    than of three query tiles, which suit few there (cuda/attention/NOTES_pieces.md)."""
    return -(group(impl) or 2) if done.panels == 1 else 0, int(re.match(r"v(\d+)", impl)[1])


def _slug(device: str) -> str:
    return re.sub(r"\W+", "-", device.strip().lower()).strip("-")


def own_folder() -> Path:
    """Where fits made on this machine are kept."""
    return paths.build_cache() / "choosers"


def save(made: Fit, folder: Path) -> Path:
    """The fit as a JSON file named after its device, replaced in one step."""
    file = folder / f"{_slug(made.device)}.json"
    whole_files.replace(file, json.dumps(asdict(made), indent=1) + "\n")
    return file


def load(device: str) -> tuple[Fit, Path] | None:
    """The fit for a GPU of this name, one made here before one that ships; None without. A file that cannot
    be read counts as none."""
    for folder in (own_folder(), SHIPPED):
        file = folder / f"{_slug(device)}.json"
        try:
            made = Fit(**json.loads(file.read_text()))
        except FileNotFoundError:
            continue
        except (OSError, TypeError, ValueError):
            continue
        if all(len(p) == len(features_of(impl)) for kind in made.prices.values() for impl, p in kind.items()):
            return made, file
    return None


@cache
def priced() -> frozenset[str]:
    """The kernels that some GPU's fit has prices of: they were measured, and the rule without a fit takes
    others only where none of these takes the inputs."""
    fits = (load(json.loads(file.read_text())["device"]) for file in sorted(SHIPPED.glob("*.json")))
    return frozenset(impl for fit in fits if fit for prices in fit[0].prices.values() for impl in prices)
