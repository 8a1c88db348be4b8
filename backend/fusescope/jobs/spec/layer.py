"""The spec of jobs over the fusion schemes of one layer: its setting, and which schemes are candidates."""

from __future__ import annotations

from typing import Any

from fusescope.core import schema
from fusescope.core.schema import Parameter
from fusescope.core.schema.cases import written
from fusescope.jobs.spec.cluster import CLUSTER
from fusescope.jobs.spec.common import SEED, check_device_of
from fusescope.search import encoding
from fusescope.search.scheme import setting


def _pair(values: Any) -> list[int]:
    if not isinstance(values, list | tuple) or len(values) != 2:
        raise ValueError(f"a range must be [first, last], not {values!r}")
    first, last = map(encoding.value, values)
    if last < first:
        raise ValueError(f"a range goes from the smaller value to the larger one, not from {first} to {last}")
    return [first, last]


def _ranges(pairs: Any) -> list[list[int]]:
    if not isinstance(pairs, list | tuple) or not pairs:
        raise ValueError(
            f"ranges must be a list of [first, last] values, or null for the default ranges; not {pairs!r}"
        )
    return [_pair(pair) for pair in pairs]


SCHEMES = (
    Parameter("ranges", "any", None, "[[first, last], …]: values or codes", further=_ranges),
    SEED,
    Parameter("budget_s", "float", 0.02, "seconds of sampling per scheme", above=0),
)


def complete(spec: dict, extra: tuple[Parameter, ...]) -> dict[str, Any]:
    """A Setting on a device of this machine as JSON, SCHEMES and the ``extra`` parameters."""
    own = (*SCHEMES, *extra, CLUSTER)
    whole = schema.complete("this job", (*setting.PARAMETERS, *own), spec)
    where = setting.of_spec(whole | {"device": check_device_of(whole)})
    whole = {p.name: whole[p.name] for p in own} | where.spec()
    if whole["cluster"] is None:
        del whole["cluster"]  # as specifications were before there were clusters
    return whole


def name(spec: dict, kind: str) -> str:
    """ "traverse of batch 8, seq 512, full, float16"."""
    sizes = f"batch {written(spec.get('batch'))}, seq {written(spec.get('seq'))}"
    return f"{kind} of {sizes}, {spec.get('mask')}, {spec.get('dtype')}"
