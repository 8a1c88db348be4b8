"""What tells one run from another in a list: shapes, mask, dtype, how long it took, where it comes from."""

from __future__ import annotations

from fusescope.charts import captions
from fusescope.core.records import Run
from fusescope.core.schema.cases import varying_values, whole

_FIRST = ("batch", "seq", "seq_max", "rows", "cols", "m", "n", "k")
"""Parameters that say most of a shape, in this order."""
_NO_SHAPE = ("mask", "bias", "heads", "kv_heads", "head_dim", "layers", "ffn", "seed")
_SHOWN = 3


def cases(run: Run) -> list[dict]:
    """The cases of a run of any kind; a run of one case has it in its specification."""
    spec = run.spec
    if spec.get("cases"):
        return [dict(case) for case in spec["cases"]]
    if spec.get("case"):
        return [dict(spec["case"])]
    one = {key: spec[key] for key in ("batch", "seq", "mask") if spec.get(key) is not None}
    return [one] if one else []


def shapes(run: Run) -> str:
    """Batch and sequence length as "(16, 2048)", else named sizes, "rows 8,192, cols 768"; of several cases
    as ranges, "7 × (1–16, 128–4,096)"."""
    told = whole(captions.told(case) for case in cases(run))
    sizes = [{k: v for k, v in case.items() if k not in _NO_SHAPE} for case in told]
    if not sizes:
        return ""
    count = len({tuple(sorted((k, str(v)) for k, v in one.items())) for one in sizes})
    values = {key: list(dict.fromkeys(one[key] for one in sizes if key in one)) for key in sizes[0]}
    if "batch" in values and "seq" in values:
        text = f"({_range(values['batch'])}, {_range(values['seq'])})"
    else:
        keys = [k for k in (*_FIRST, *varying_values(sizes)) if k in values] or list(values)
        text = ", ".join(f"{key} {_range(values[key])}" for key in list(dict.fromkeys(keys))[:_SHOWN])
    return f"{count} × {text}" if count > 1 else text


def mask(run: Run) -> str:
    """The one mask, without its parameters; "8 masks"; "" where there is none."""
    names = list(dict.fromkeys(str(case["mask"]) for case in cases(run) if case.get("mask")))
    if len(names) > 1:
        return f"{len(names)} masks"
    return "".join(n.rpartition("/")[2] if n.startswith("file:") else n.partition(":")[0] for n in names)


def seconds(run: Run) -> float | None:
    """How long the run took; None while it runs and where it was never started."""
    return run.finished - run.started if run.finished and run.started else None


def source(run: Run) -> str:
    """Where a run comes from."""
    return "recorded" if run.recorded else "imported" if run.imported else "this machine"


def _range(values: list) -> str:
    numeric = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numeric) < len(values):
        return str(values[0]) if len(values) == 1 else f"{len(values)} values"
    low, high = min(numeric), max(numeric)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
