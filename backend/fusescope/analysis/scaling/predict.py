"""The time and memory of a model on devices that are not there: measured arithmetic of a rank's share, the
α–β model of its collectives, the bubbles of its pipeline.

For tp × pp × dp ranks, a batch B cut into m micro-batches of b = B/dp/m sequences:
    stage   = share of the layers (b, tp)/pp + 2 all-reduces for each layer of the stage
    whole   = (m + pp − 1) stages, and pp − 1 sends that nothing hides
    bubble  = (pp − 1)/(m + pp − 1) of the stages
Replicas do not talk in a forward pass. Arithmetic hides no all-reduce: each layer waits for its sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from fusescope.analysis.scaling.compute import Compute
from fusescope.analysis.scaling.links import Link


@dataclass(frozen=True)
class Work:
    """What a prediction knows of a model on a case. size: bytes of an element; split, whole, first, last:
    parameters (models/describe/layouts.py); wide: elements of a token that a layer holds at once and that are
    divided by tp."""

    layers: int
    hidden: int
    seq: int
    batch: int
    size: int
    split: int
    whole: int
    first: int
    last: int
    wide: int


@dataclass(frozen=True)
class Prediction:
    """Milliseconds: the whole call, the arithmetic, the collectives, the wait of a stage for others (bubble).
    memory_bytes: weights and activations of the fullest rank, a lower bound. measured: the arithmetic was
    measured at exactly this share and batch. host_bound: a rank's launches take half of its time or more,
    so that ``ms`` is a lower bound: what ranks take from one another's hosts one device does not show."""

    tp: int
    pp: int
    dp: int
    micro_batches: int
    ms: float
    compute_ms: float
    communication_ms: float
    bubble_ms: float
    memory_bytes: int
    measured: bool
    host_bound: bool = False

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp

    def to_json(self) -> dict:
        return asdict(self) | {"ranks": self.ranks}


def predict(
    work: Work, tp: int, pp: int, dp: int, micro_batches: int, compute: Compute, links: Mapping[str, Link]
) -> Prediction:
    """One layout. ValueError where the batch is not divided as asked."""
    pieces = micro_batches if pp > 1 else 1
    if work.batch % (dp * pieces):
        raise ValueError(f"batch {work.batch} is not divided into {dp} replicas of {pieces} micro-batches")
    batch = work.batch // dp // pieces
    piece = batch * work.seq * work.hidden * work.size
    share = compute.ms(tp, batch) / pp
    reduces = 2 * work.layers / pp * links["all_reduce"].seconds(tp, piece) * 1e3
    hop = links["send_recv"].seconds(2, piece) * 1e3 if pp > 1 else 0.0
    stage = share + reduces
    steps = pieces + pp - 1
    exposed = (pp - 1) * hop + (pieces - 1) * max(0.0, hop - stage)
    return Prediction(
        tp,
        pp,
        dp,
        pieces,
        steps * stage + exposed,
        pieces * share,
        pieces * reduces + exposed,
        (pp - 1) * stage,
        memory(work, tp, pp, batch * pieces, batch),
        compute.is_measured(tp, batch),
        tp * pp * dp > 1 and compute.is_host_bound(tp, batch),
    )


def memory(work: Work, tp: int, pp: int, batch: int, at_once: int) -> int:
    """Bytes of the fullest rank: its weights, the hidden states of its batch, and what a layer holds at
    once."""
    weights = (work.split / tp + work.whole) / pp + (
        max(work.first, work.last) if pp > 1 else work.first + work.last
    )
    tokens = work.seq * (2 * batch * work.hidden + at_once * (2 * work.hidden + work.wide / tp))
    return int(work.size * (weights + tokens))


@dataclass(frozen=True)
class Help:
    """What a layout would take in ms if one thing cost nothing."""

    what: str
    ms: float


def helps(work: Work, at: Prediction, compute: Compute, links: Mapping[str, Link]) -> list[Help]:
    """What would help a layout most, the greatest gain first: latency, bandwidth, bubbles, or a share of the
    arithmetic that shrinks with the ranks as it should."""

    def again(changed: Mapping[str, Link]) -> float:
        return predict(work, at.tp, at.pp, at.dp, at.micro_batches, compute, changed).ms

    no_latency = {name: replace(link, alpha_s=0.0, call_s=0.0) for name, link in links.items()}
    no_volume = {name: replace(link, beta_bytes_per_s=float("inf")) for name, link in links.items()}
    found = [
        Help("collectives without latency", again(no_latency)),
        Help("unlimited bandwidth", again(no_volume)),
    ]
    if at.bubble_ms:
        found.append(Help("a pipeline without bubbles (many more micro-batches)", at.ms - at.bubble_ms))
    batch = work.batch // at.dp // at.micro_batches
    ideal = compute.ms(1, work.batch) / at.tp * batch / work.batch
    lost = max(0.0, compute.ms(at.tp, batch) - ideal) * (at.micro_batches + at.pp - 1) / at.pp
    if lost:
        found.append(Help("arithmetic that shrinks in proportion to a rank's share", at.ms - lost))
    return sorted(found, key=lambda h: h.ms)
