"""Every distinct fusion scheme of some ranges, checked and timed: the job behind the Fusion page's map and
``traverse``."""

from __future__ import annotations

from fusescope.search import encoding, sessions
from fusescope.search.scheme.setting import Setting, of_spec

TITLE = "Fusion traverse"
DEFAULTS = {
    "ranges": None,
    "limit": None,
    "seed": 0,
    "budget_s": 0.02,
    "segments": True,
    "after": None,
    "part": None,
}


def validate(spec: dict) -> dict:
    """A Setting as JSON and {ranges: [[first, last], …] of values, both counted in, or None (the default
    ranges); limit: how many schemes at most, drawn by the seed, or None; seed; budget_s of sampling a scheme;
    segments: time each on its own, too; after: ids of earlier traverses of this setting with commas between,
    whose codes are not measured again (unless they found no memory), or None; part: [start, stop], the share
    of several that measure one traverse at a time, as positions in its order of measuring, stop not counted,
    or None}. ValueError or TypeError: the rule, the value given."""
    whole = check(spec, DEFAULTS) | {"ranges": check_ranges(spec.get("ranges"))}
    if whole["after"] is not None:
        if not isinstance(whole["after"], str):
            raise TypeError(f"after is ids of runs with commas between, not {whole['after']!r}")
        whole["after"] = sessions.check(whole["after"], of_spec(whole)) or None
    if (part := whole["part"]) is not None:
        good = isinstance(part, list | tuple) and len(part) == 2 and all(type(end) is int for end in part)
        if not good or not 0 <= part[0] < part[1]:
            raise ValueError(f"part is two positions, 0 ≤ start < stop, not {part!r}")
        whole["part"] = list(part)
    return whole


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.search.sweeps import exhaustive

    exhaustive.run(spec, reporter)


def check(spec: dict, defaults: dict) -> dict:
    """The complete spec of a job over one layer: its setting on a device that is here, and the other keys
    within their bounds."""
    from fusescope.jobs.kinds.bench import check_device

    unknown = set(spec) - set(Setting.__dataclass_fields__) - set(defaults)
    if unknown:
        takes = ", ".join([*Setting.__dataclass_fields__, *defaults])
        raise ValueError(f"this job takes {takes}, not {', '.join(sorted(unknown))}")
    setting = of_spec(spec | {"device": check_device(spec.get("device", "cpu"))})
    whole = defaults | {k: v for k, v in spec.items() if k in defaults} | setting.spec()
    for name, low in (("limit", 1), ("evaluations", 1), ("seed", 0)):
        value = whole.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
            raise ValueError(f"{name} is a whole number from {low}, not {value!r}")
    for name in ("budget_s", "seconds"):
        value = whole.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not value > 0
        ):
            raise ValueError(f"{name} is a number of seconds above 0, not {value!r}")
    if not isinstance(whole.get("segments", True), bool):
        raise TypeError(f"segments is true or false, not {whole['segments']!r}")
    return whole


def check_ranges(ranges) -> list[list[int]] | None:
    """[[first, last], …] as values; each end may be given as a code."""
    if ranges is None:
        return None
    if not isinstance(ranges, list | tuple) or not ranges:
        raise TypeError(
            f"ranges is a list of [first, last] values, or null for the default ranges; not {ranges!r}"
        )
    found = []
    for pair in ranges:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(f"a range is [first, last], not {pair!r}")
        first, last = (encoding.value(end) for end in pair)
        if last < first:
            raise ValueError(
                f"a range goes from the smaller value to the larger one, not from {first} to {last}"
            )
        found.append([first, last])
    return found
