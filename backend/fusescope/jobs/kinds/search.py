"""The fastest fusion scheme of a layer, found with few evaluations: the job behind the Fusion page's search
and ``search``."""

from __future__ import annotations

from fusescope.core.schema import Parameter
from fusescope.jobs.spec import layer
from fusescope.search import sessions
from fusescope.search.learning import boosted, explore
from fusescope.search.scheme.setting import Setting

TITLE = "Fusion search"


REPLAY = Parameter("replay", "text", None, "id of a traverse, or several with commas, to play the search on")
PARAMETERS = (
    Parameter("strategy", "choice", "guided", choices=tuple(explore.STRATEGIES)),
    Parameter("evaluations", "int", None, "how many schemes at most", low=1),
    Parameter("seconds", "float", None, "of measuring at most", above=0),
    REPLAY,
)


def validate(spec: dict) -> dict:
    """A Setting as JSON, {ranges: as of a traverse; seed; budget_s of sampling per scheme} and PARAMETERS.

    Without evaluations and seconds it measures a twentieth of the candidates. With ``replay`` nothing is
    measured: the setting is that of the traverse. ValueError: the rule, the value; ModuleNotFoundError where
    the strategy needs a package that is not here.
    """
    replay = spec.get("replay")
    whole = layer.complete(spec, PARAMETERS) if replay is None else _replayed(spec, REPLAY.check(replay))
    if whole["strategy"] == "guided":
        boosted.require()
    return whole


def name(spec: dict) -> str:
    return layer.name(spec, "search")


def device(spec: dict) -> str | None:
    return None if spec["replay"] else spec["device"]


def run(spec: dict, reporter) -> None:
    if "work" in spec:  # of a worker of a cluster
        from fusescope.search.sweeps import on_worker

        return on_worker.run(spec, reporter)
    from fusescope.search.sweeps import search_job

    search_job.run(spec, reporter)


def _replayed(spec: dict, replay: str) -> dict:
    """The spec with the setting of the run that is replayed, whatever devices are here."""
    if not replay.replace(",", " ").split():
        raise ValueError(f"replay names one or more traverses, not {replay!r}")
    if spec.get("cluster"):
        raise ValueError(f"a replay measures nothing and takes no cluster, not {spec['cluster']!r}")
    _, setting = sessions.times(replay)
    own = {k: v for k, v in spec.items() if k not in Setting.__dataclass_fields__}
    whole = layer.complete(setting.spec() | {"device": "cpu"} | own, PARAMETERS)
    return whole | setting.spec() | {"ranges": None}
