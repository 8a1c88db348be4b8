"""Which kernel ``impl="auto"`` takes: a time model of each kernel, fitted to measured records of one GPU.
Torch only where a case is counted.

The model of a kernel is a sum of non-negative prices (microseconds) for what it does:

    call        the launch itself
    keys        live elements x panels            what the row-wise kernel walks
    tiles       live tiles x panels / SMs         work of the whole grid, spread evenly
    partial     partial tiles / SMs               evaluating bitmaps
    longest     longest tile list x panels        the block that finishes last
    bound       max(tiles, longest)               the makespan that no order of blocks undercuts
    blocks      query tiles x panels / SMs        queries in, results out
    rounds      times that the blocks launched fill the GPU x panels

summed over batch and heads; a panel is 64 columns of head size. A kernel that works on items (parts.py) does
something else than the lists of the whole mask say:

    call        the first launch
    parts       further parts                     their launches
    joins       parts with lists that were cut    the launches that join their pieces
    longest     steps of the longest items x panels
    steps       steps x panels / SMs              half a step where one of two query tiles takes it
    blocks      items x panels / SMs              queries in, results out
    later       items of further parts, likewise  results merged with those that are there
    pieces      partial results, likewise         written and read

Few query tiles (up to one a multiprocessor) and some (up to four) have prices of their own, and of more those
with wide heads (above 64 columns): twice the columns take less than twice the time. Where another kernel than
the predicted one was measured to be the fastest, it is taken: what was measured needs no prediction. Relative
errors are minimised, so that a microsecond counts as much at ten as ten at a hundred. A fit is a JSON file a
GPU model: those shipped lie in fits/, those made here (``python -m fusescope chooser --fit``) in the build
cache, which are taken first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fusescope.core import paths
from fusescope.ops.attention.work import parts

FEATURES = ("call", "keys", "tiles", "partial", "longest", "bound", "blocks", "rounds")
IN_PARTS = ("call", "parts", "joins", "longest", "steps", "blocks", "later", "pieces")
SHIPPED = Path(__file__).parent / "fits"
_KINDS = {
    "float32": "float32",
    "float16": "16 bit",
    "bfloat16": "16 bit",
}  # both 16-bit types run the same instructions
_FEW, _SOME = (
    1,
    4,
)  # query tiles a multiprocessor up to which kernels share a tile among warpgroups, in more ways or fewer
_LEAST = 6  # records below which a kernel is not fitted


def features_of(impl: str) -> tuple[str, ...]:
    """What a kernel has prices for, in their order."""
    return IN_PARTS if impl == parts.KERNEL else FEATURES


def _kind(dtype: str, done: Work, sms: int) -> str:
    """Which prices a case is asked at: those of its dtype, and of few, some or many query tiles, many of wide
    heads apart."""
    many = ", wide heads" if done.panels > 1 else ""
    amount = (
        ", few tiles" if done.blocks <= _FEW * sms else ", some tiles" if done.blocks <= _SOME * sms else many
    )
    return _KINDS[dtype] + amount


def _rounds(impl: str, done: Work, sms: int) -> int:
    """How often the blocks that a kernel launches fill the GPU, by what its source says of query tiles a
    block and blocks a multiprocessor up to 64 columns of head size; wider heads leave room for half as
    many."""
    tiles, steps, room = done.blocks, done.longest // 2 + 1, sms if done.panels == 1 else max(1, sms // 2)
    together = {
        "v2_blockwise": (1, 3),
        "v2_blockwise_fp32": (1, 2),
        "v3_hopper": (2, 2),
        "v4_scheduled": (2, 2),
    }
    tiles_a_block, blocks = together.get(impl, (1, 1))
    if impl == "v3_hopper" and tiles <= 2 * sms:
        tiles_a_block, blocks = 1, 4
    if impl == "v4_scheduled" and tiles <= sms and steps > 2:
        tiles_a_block, blocks = 1, 1
    elif impl == "v4_scheduled" and ((tiles <= 2 * sms and steps > 1) or (tiles <= 4 * sms and steps > 5)):
        tiles_a_block = 1
    return -(-tiles // (tiles_a_block * blocks * room))


class Work(NamedTuple):
    """A case as the models see it: counts over batch and heads; longest is tiles of the longest list, panels
    ceil(D / 64). in_parts: what kernels that work on items do; None where that is not known, and they are not
    among those to choose from."""

    keys: int
    tiles: int
    partial: int
    longest: int
    blocks: int
    panels: int
    in_parts: parts.Figures | None = None

    @property
    def key(self) -> str:
        """What the mask and the sizes come to, as a text."""
        return " ".join(map(str, self[:-1]))

    def features(self, impl: str, sms: int) -> np.ndarray:
        """What the kernel does, in the order of ``features_of``."""
        if impl == parts.KERNEL:
            p, share = self.in_parts, self.panels / sms
            spread = (p.steps * share, p.blocks * share, p.later * share, p.pieces * share)
            return np.array((1.0, p.parts - 1, p.joins, p.longest * self.panels, *spread))
        tiles, longest = self.tiles * self.panels / sms, self.longest * self.panels
        rest = (
            self.keys * self.panels / 1e6,
            tiles,
            self.partial / sms,
            longest,
            max(tiles, longest),
            self.blocks * self.panels / sms,
            _rounds(impl, self, sms) * self.panels,
        )
        return np.array((1.0, *rest))


def work(batch, heads, seq_q, head_dim, masks, live_elements, full_tiles, partial_tiles, longest) -> Work:
    """The work of a call whose plan (of ``masks`` masks) has these figures."""
    copies = batch * heads / masks
    count = int(copies * (full_tiles + partial_tiles))
    blocks = batch * heads * -(-seq_q // 64)
    return Work(
        int(copies * live_elements), count, int(copies * partial_tiles), longest, blocks, -(-head_dim // 64)
    )


def work_of_case(values: Mapping, sms: int) -> Work:
    """The work of a complete case of the operator (see cases.validate) on a GPU of so many
    multiprocessors."""
    batch, heads, seq, seq_k, head_dim, mask = (
        values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim", "mask")
    )
    figures = _figures(mask, seq, seq_k)
    done = work(batch, heads, seq, head_dim, *figures)
    if (
        figures[0] > 1 or head_dim > parts.MOST_COLUMNS
    ):  # masks of several sequences come and go: choosing.py does not look at their parts
        return done
    return done._replace(in_parts=_in_parts(mask, batch, heads, seq, seq_k, head_dim, sms))


@lru_cache(maxsize=256)
def _figures(mask: str, seq_q: int, seq_k: int) -> tuple[int, int, int, int, int]:
    plan = _plan(mask, seq_q, seq_k)
    return plan.batch * plan.heads, plan.live_elements, plan.full_tiles, plan.partial_tiles, plan.longest


@lru_cache(maxsize=1024)
def _in_parts(
    mask: str, batch: int, heads: int, seq_q: int, seq_k: int, head_dim: int, sms: int
) -> parts.Figures:
    return parts.of(_plan(mask, seq_q, seq_k), batch, heads, head_dim, parts.resident(sms, head_dim)).figures


def _plan(mask: str, seq_q: int, seq_k: int):
    from fusescope import masks
    from fusescope.ops.attention.plan.plan import prepare

    return prepare(masks.parse(mask), seq_q, seq_k)


@dataclass(frozen=True)
class Fit:
    """Prices of each kernel on one GPU model: prices[kind][impl] in the order of features_of(impl), kind "16
    bit" or "float32", each also with ", few tiles", ", some tiles" and ", wide heads".

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

    def microseconds(self, dtype: str, done: Work) -> dict[str, float]:
        """Predicted kernel time of every fitted kernel, fastest first."""
        prices = self.prices.get(_kind(dtype, done, self.sms), {})
        known = {impl: p for impl, p in prices.items() if impl != parts.KERNEL or done.in_parts is not None}
        times = {impl: float(done.features(impl, self.sms) @ np.asarray(p)) for impl, p in known.items()}
        return dict(sorted(times.items(), key=lambda item: item[1]))

    def choose(self, dtype: str, done: Work, among: Iterable[str]) -> str | None:
        """The kernel of the least predicted time among those named, or the one that was measured to be
        faster; None where none of them is fitted."""
        times, allowed = self.microseconds(dtype, done), set(among)
        better = self.corrections.get(_kind(dtype, done, self.sms), {}).get(done.key)
        return next((impl for impl in (better, *times) if impl in times and impl in allowed), None)


def fit(
    device: str, sms: int, measured: Sequence[tuple[str, str, Work, float]], runs=(), sources=None
) -> Fit:
    """A fit to (impl, dtype, work, microseconds) of one device. ValueError where no kernel has enough
    records."""
    prices: dict[str, dict[str, list[float]]] = {}
    used = 0
    cases = [(_kind(dtype, done, sms), impl, done, us) for impl, dtype, done, us in measured]
    for kind in sorted({k for k, _, _, _ in cases}):
        for impl in sorted({i for k, i, _, _ in cases if k == kind}):
            mine = [(done, us) for k, i, done, us in cases if i == impl and k == kind]
            if len(mine) < _LEAST:
                continue
            used += len(mine)
            times = np.array([us for _, us in mine])
            rows = np.array([done.features(impl, sms) for done, _ in mine]) / times[:, None]
            prices.setdefault(kind, {})[impl] = [
                float(f"{p:.5g}") for p in non_negative(rows, np.ones(len(mine)))
            ]
    if not prices:
        raise ValueError(
            f"a kernel is fitted to at least {_LEAST} records; there are {len(measured)} of all kernels on {device}"
        )
    made = Fit(device, sms, prices, tuple(runs), dict(sources or {}), used)
    return replace(made, corrections=_corrections(made, measured))


def _corrections(made: Fit, measured: Sequence[tuple[str, str, Work, float]]) -> dict[str, dict[str, str]]:
    """Of the works measured, where the kernel that the prices take is not the fastest."""
    found: dict[str, dict[str, str]] = {}
    for (dtype, done), times in _by_work(measured).items():
        best = min(times, key=times.get)
        if made.choose(dtype, done, times) not in (None, best):
            found.setdefault(_kind(dtype, done, made.sms), {})[done.key] = best
    return found


def _by_work(measured: Iterable[tuple[str, str, Work, float]]) -> dict[tuple[str, Work], dict[str, float]]:
    """{(dtype, work): {impl: microseconds}}, the last record of an implementation."""
    cases: dict[tuple[str, Work], dict[str, float]] = {}
    for impl, dtype, done, us in measured:
        cases.setdefault((dtype, done), {})[impl] = us
    return cases


def non_negative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x >= 0 with the least |a x - b|, by the active-set method of Lawson and Hanson (Solving Least Squares
    Problems, 1974, ch. 23)."""
    scale = np.linalg.norm(a, axis=0)
    a = a / np.where(scale == 0, 1, scale)
    x, free = np.zeros(a.shape[1]), np.zeros(a.shape[1], bool)
    for _ in range(10 * a.shape[1]):
        gradient = a.T @ (b - a @ x)
        gradient[free] = -np.inf
        if gradient.max() <= 1e-10:
            break
        free[gradient.argmax()] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            low = free & (trial <= 0)
            if not low.any():
                break
            step = np.min(x[low] / (x[low] - trial[low] + 1e-300))  # as far as no price turns negative
            x = x + step * (trial - x)
            free &= x > 1e-12
            x[~free] = 0
            if not free.any():
                trial = x
                break
        x = trial
    return x / np.where(scale == 0, 1, scale)


def measured(records: Iterable, sms: int) -> list[tuple[str, str, Work, float]]:
    """What a fit needs of records of attention on a GPU of so many multiprocessors, oldest first: our kernels
    that were right, by their graph time, without a bias.

    Of a kernel and case only the source that was measured last counts; what was measured before an edit holds
    where nothing was since. Of the kernel in parts only cases that the choice looks at. Records under the
    power cap count, too: large works always run there, and a case's kernels are timed in turns.
    """
    found, newest = [], {}
    for r in records:
        timing = r.time_ms.graph if r.op == "attention" and r.status == "ok" and r.time_ms else None
        if timing is not None and r.impl.startswith("v") and r.case["bias"] == "none":
            found.append((r, timing.median * 1e3))
            newest[r.impl, r.case_key] = r.source_hash
    rows = [
        (r.impl, r.dtype, work_of_case(r.case, sms), us)
        for r, us in found
        if newest[r.impl, r.case_key] == r.source_hash
    ]
    return [row for row in rows if row[0] != parts.KERNEL or row[2].in_parts is not None]


def regret(made: Fit, held_out: Sequence[tuple[str, str, Work, float]]) -> list[float]:
    """For each case of what was held out: time of the kernel that the fit takes over that of the best
    measured one, 1.0 = the best. Left out are cases of which the fit says nothing, because no kernel had
    enough records: there the rule chooses."""
    found = []
    for (dtype, done), times in _by_work(held_out).items():
        if chosen := made.choose(dtype, done, times):
            found.append(times[chosen] / min(times.values()))
    return found


def cross_validated(
    device: str, sms: int, rows: Sequence[tuple[str, str, Work, float]], parts: int = 10
) -> list[float]:
    """``regret`` of every case by a fit to the other parts only; cases are dealt round-robin in the order
    given."""
    order = {key: n for n, key in enumerate(dict.fromkeys((dtype, done) for _, dtype, done, _ in rows))}
    found = []
    for part in range(min(parts, len(order))):
        held = [row for row in rows if order[row[1], row[2]] % parts == part]
        rest = [row for row in rows if order[row[1], row[2]] % parts != part]
        found += regret(fit(device, sms, rest), held)
    return found


def _slug(device: str) -> str:
    return re.sub(r"\W+", "-", device.strip().lower()).strip("-")


def own_folder() -> Path:
    """Where fits made on this machine are kept."""
    return paths.build_cache() / "choosers"


def save(made: Fit, folder: Path) -> Path:
    """The fit as a JSON file named after its device, replaced in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{_slug(made.device)}.json"
    part = file.with_suffix(".json.part")
    part.write_text(json.dumps(asdict(made), indent=1) + "\n")
    part.replace(file)
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
