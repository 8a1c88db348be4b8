"""The fastest fusion scheme of a layer, found with few evaluations: the job behind the Fusion page's search
and ``search``."""

from __future__ import annotations

from fusescope.jobs.kinds import traverse
from fusescope.search.learning import boosted, explore

TITLE = "Fusion search"
DEFAULTS = {
    "strategy": "guided",
    "evaluations": None,
    "seconds": None,
    "ranges": None,
    "seed": 0,
    "budget_s": 0.02,
    "replay": None,
}


def validate(spec: dict) -> dict:
    """A Setting as JSON and {strategy, evaluations: how many schemes at most, seconds: of measuring at most
    (both may be None: a twentieth of the candidates), ranges: of candidates, as of a traverse, seed, budget_s
    of sampling a scheme, replay: id of a traverse on which the search is played offline (its setting holds
    then; ids of several sittings with commas), or None}. ValueError or TypeError: the rule, the value;
    ModuleNotFoundError where the strategy needs a package that is not here."""
    strategy, replay = spec.get("strategy", "guided"), spec.get("replay")
    if not isinstance(strategy, str):
        raise TypeError(f"strategy is a name, not {strategy!r}")
    explore.check(strategy)
    if strategy == "guided":
        boosted.require()
    if replay is not None:
        if not isinstance(replay, str):
            raise TypeError(f"replay is a run's id, not {replay!r}")
        return _replayed(spec, replay)
    return traverse.check(spec, DEFAULTS) | {"ranges": traverse.check_ranges(spec.get("ranges"))}


def device(spec: dict) -> str | None:
    return None if spec["replay"] else spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.search.sweeps import search_job

    search_job.run(spec, reporter)


def _replayed(spec: dict, replay: str) -> dict:
    """The spec with the setting of the run that is replayed, whatever devices are here."""
    from fusescope.search.sweeps.search_job import truth_of

    _, setting = truth_of(replay)
    own = {k: v for k, v in spec.items() if k in DEFAULTS}
    checked = traverse.check(setting.spec() | {"device": "cpu"} | own, DEFAULTS)
    return checked | setting.spec() | {"ranges": None}
