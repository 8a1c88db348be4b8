"""What a record says besides its times: of models, layouts over several devices, kernels with a setup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_NOT_NEGATIVE = {"low": 0}
_ONE_AT_LEAST = {"low": 1}


@dataclass(frozen=True)
class Throughput:
    """Per second, at the median of the headline time."""

    sequences_per_s: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    tokens_per_s: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    images_per_s: float | None = field(default=None, metadata=_NOT_NEGATIVE)


@dataclass(frozen=True)
class Memory:
    """Bytes on the device; None: not known there."""

    weights_bytes: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    kept_bytes: int | None = None
    graph_pool_bytes: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    call_bytes: int | None = None
    peak_bytes: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    nvml_process_bytes: int | None = field(default=None, metadata=_NOT_NEGATIVE)


@dataclass(frozen=True)
class Part:
    """Of a profiled pass: ms, and the share of the whole, 0 … 1."""

    ms: float = field(metadata=_NOT_NEGATIVE)
    share: float = field(metadata=_NOT_NEGATIVE)


@dataclass(frozen=True)
class Held:
    """Bytes while a model generates."""

    weights_bytes: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    cache_bytes: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    activations_bytes: int | None = None


@dataclass(frozen=True)
class Generation:
    """A phase of generation: ms to the first token and per token by percentile ("p50"), and the share of the
    memory's rate that a token takes, 0 … 1."""

    memory: Held
    first_ms: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    token_ms: Mapping[str, float] | None = field(default=None, metadata=_NOT_NEGATIVE)
    tokens_per_s: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    roof_share: float | None = field(default=None, metadata=_NOT_NEGATIVE)


@dataclass(frozen=True)
class Quantised:
    """What quantised weights, or an fp8 cache, change in the outputs."""

    relative_l2: float | None = None
    kl_mean: float | None = None
    kl_most: float | None = None
    same_token: float | None = None


@dataclass(frozen=True)
class RankShare:
    """A rank's profiled call, ms."""

    span_ms: float = field(metadata=_NOT_NEGATIVE)
    compute_ms: float = field(metadata=_NOT_NEGATIVE)
    communication_ms: float = field(metadata=_NOT_NEGATIVE)
    exposed_ms: float = field(metadata=_NOT_NEGATIVE)


@dataclass(frozen=True)
class Communication:
    """Of all ranks: the share of the call, and how much of it arithmetic hides, 0 … 1."""

    ranks: tuple[RankShare | None, ...] = ()
    share: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    hidden: float | None = None
    unknown: str | None = None


@dataclass(frozen=True)
class Parallel:
    """A layout over several devices; bytes by rank."""

    layout: str
    tp: int = field(metadata=_ONE_AT_LEAST)
    pp: int = field(metadata=_ONE_AT_LEAST)
    dp: int = field(metadata=_ONE_AT_LEAST)
    ranks: int = field(metadata=_ONE_AT_LEAST)
    scaling: str = field(metadata={"choices": ("strong", "weak")})
    attention: str
    weights_bytes: tuple[int, ...] = field(metadata=_NOT_NEGATIVE)
    peak_bytes: tuple[int | None, ...] = field(metadata=_NOT_NEGATIVE)
    communication: Communication
    micro_batches: int = field(default=1, metadata=_ONE_AT_LEAST)
    single_ms: float | None = field(default=None, metadata=_NOT_NEGATIVE)

    def __post_init__(self):
        for name in ("weights_bytes", "peak_bytes"):
            if len(getattr(self, name)) != self.ranks:
                raise ValueError(f"{name} has a number for each of {self.ranks} ranks")


@dataclass(frozen=True)
class Setup:
    """What a kernel prepares once: ms, bytes that it keeps, and ms of compiling."""

    ms: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    bytes: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    compile_ms: float | None = field(default=None, metadata=_NOT_NEGATIVE)


@dataclass(frozen=True)
class Extra:
    """``Record.extra``: which keys there are depends on what was measured. percentiles_ms: by mode, then by
    percentile ("p50"); parts: by layer part or module; sitting: the run of a merged one that measured it."""

    parameters: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    throughput: Throughput | None = None
    percentiles_ms: Mapping[str, Mapping[str, float]] | None = field(default=None, metadata=_NOT_NEGATIVE)
    memory: Memory | None = None
    share_of_peak: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    parts: Mapping[str, Part | None] | None = None
    valid_tokens: int | None = field(default=None, metadata=_NOT_NEGATIVE)
    gemms_ms: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    generation: Generation | None = None
    quantised: Quantised | None = None
    parallel: Parallel | None = None
    setup: Setup | None = None
    sitting: str | None = None
