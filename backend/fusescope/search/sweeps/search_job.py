"""The search for the fastest scheme of a setting: on the device, resumable, or replayed on a recorded
sweep."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from fusescope.core import whole_files
from fusescope.core.records import Record
from fusescope.core.reporter import Reporter
from fusescope.core.schema.typed import build, plain
from fusescope.search import encoding, sessions
from fusescope.search.learning import explain, explore, found, pairs
from fusescope.search.measuring import baselines
from fusescope.search.measuring.evaluate import Evaluator
from fusescope.search.scheme import codegen
from fusescope.search.scheme.setting import OP, Setting, of_spec
from fusescope.search.sweeps import exhaustive

FINALISTS = 3  # the best of the search, measured again with the full budget with all baselines
_SHARE = 0.05  # of the candidates that are evaluated where neither a number nor a time is given
_FEWEST = 64


def run(spec: Mapping, reporter: Reporter, evaluator=None) -> None:
    """The job kind ``search``; leaves artifacts/search.json, pairs.tsv and the best
    scheme's module. evaluator: what measures (default: this process).

    Raises ValueError where no scheme could be measured at all.
    """
    setting = of_spec(spec)
    if spec["replay"]:
        return _offline(spec, setting, reporter)
    candidates = exhaustive.codes(spec["ranges"], None, spec["seed"])
    share = len(candidates) if spec["seconds"] else max(_FEWEST, int(_SHARE * len(candidates)))
    limit = min(spec["evaluations"] or share, len(candidates))
    evaluator = evaluator or Evaluator(setting, reporter, spec["seed"], spec["budget_s"])
    known = {r.impl: r.ms for r in _recorded(reporter) if r.case_key == evaluator.key}
    strategy = explore.make(spec["strategy"], candidates, spec["seed"])
    history, begun, fresh = explore.History(), time.monotonic(), 0

    def say(text: str) -> None:
        reporter.check()
        done = len(history.steps)
        reporter.progress(done, limit, text, _eta(begun, fresh, limit - done, spec["seconds"]))

    say("starting")
    evaluator.prepare(say)
    if setting.cuda:  # any segment may be needed, and all at once compile sooner than a few per batch
        evaluator.load([*candidates, *baselines.BASELINES], say)
    evaluator.baselines(say)
    before, asked = _asked(reporter), []
    begun = time.monotonic()
    while (left := limit - len(history.steps)) > 0 and not _over(begun, spec["seconds"]):
        count = before[len(asked)] if len(asked) < len(before) else evaluator.at_once
        some = strategy.ask(min(count, left))
        if not some:
            break
        asked.append(count)
        due = [c for c in some if c not in known]
        known |= evaluator.evaluate(due, say)
        fresh += len(due)
        times = {c: known[c] for c in some}
        strategy.tell(times)
        history.add(times)
        say(_words(history))
        _write(reporter, spec, setting, len(candidates), history, None, asked)
    best = sorted((ms, c) for c, ms in known.items() if ms is not None)
    if not best:
        raise ValueError("no scheme could be measured; the records say why of each")
    say("measuring the best and the baselines")
    final = evaluator.final([c for _, c in best[:FINALISTS]], say)
    result = _result(final, best[0][1], best[0][0], setting)
    _write(reporter, spec, setting, len(candidates), history, result, asked)
    module = reporter.artifact(f"generated/{result.code}.py")
    module.write_text(codegen.generate(result.code, setting))
    done = len(history.steps)
    reporter.progress(done, done, f"fastest: {result.code} with {result.ms:.4g} ms")


def _offline(spec: Mapping, setting: Setting, reporter: Reporter) -> None:
    truth, _ = sessions.times(spec["replay"])
    limit = min(len(truth), spec["evaluations"] or max(_FEWEST, int(_SHARE * len(truth))))
    reporter.progress(0, limit, f"replaying on {len(truth)} schemes of {spec['replay']}")
    history = explore.History()
    for step in explore.replay(truth, spec["strategy"], limit, spec["seed"]):
        reporter.check()
        history.steps.append(step)
    code, ms = history.best
    to_it = explore.evaluations_to(history.steps, min(truth.values()))
    words = codegen.words(code, setting)
    result = found.Best(code, ms, words, best_of_all_ms=min(truth.values()), to_3_percent=to_it)
    _write(reporter, spec, setting, len(truth), history, result)
    reporter.progress(
        limit, limit, f"fastest: {code} with {ms:.4g} ms; the best of all takes {min(truth.values()):.4g} ms"
    )


def _write(
    reporter: Reporter,
    spec: Mapping,
    setting: Setting,
    candidates: int,
    history: explore.History,
    result: found.Best | None,
    asked: Sequence[int] = (),
) -> None:
    """search.json as it stands."""
    known = {s.code: s.ms for s in history.steps if s.ms is not None}
    explained = result is not None and len(known) >= 3
    whole = found.Found(
        history=tuple(history.steps),
        strategy=spec["strategy"],
        seed=spec["seed"],
        replay=spec["replay"],
        setting=setting.spec(),
        candidates=candidates,
        asked=tuple(asked),
        result=result,
        boundaries=tuple(explain.boundaries(known, result.code)) if explained else (),
        segments=tuple(explain.segments(known)) if explained else (),
    )
    whole_files.replace(reporter.artifact(found.NAME), json.dumps(plain(whole), allow_nan=False))
    if result is not None and known:
        reporter.artifact("pairs.tsv").write_text(pairs.text(known))


def _result(timed: Mapping, code: str, ms: float, setting: Setting) -> found.Best:
    """The fastest of the finalists with its paired speed-ups; the best of the search where none of them could
    be measured again."""
    finalists = {c: v for c, v in timed.items() if encoding.is_code(c)}
    if not finalists:
        return found.Best(code, ms, codegen.words(code, setting))
    best = min(finalists, key=lambda c: finalists[c]["ms"])
    return found.Best(best, finalists[best]["ms"], codegen.words(best, setting), finalists[best]["speedups"])


def _asked(reporter: Reporter) -> tuple[int, ...]:
    """For how many codes an earlier start of this run asked each time: asked again, the strategy gives the
    same codes."""
    try:
        before = build(found.Found, json.loads(reporter.artifact(found.NAME).read_text())).asked
    except (OSError, ValueError):
        return ()
    return before if reporter.skip() else ()


def _recorded(reporter: Reporter) -> list[Record]:
    """The records of schemes that an earlier start of this run left."""
    from fusescope.store import folder

    if not reporter.skip():
        return []
    run = reporter.artifact(found.NAME).parent.parent
    if not (run / "run.json").is_file():
        return []
    return [r for r in folder.records(run) if r.op == OP and encoding.is_code(r.impl)]


def _words(history: explore.History) -> str:
    code, ms = history.best
    return f"best so far {code} with {ms:.4g} ms" if code else "measuring"


def _over(begun: float, seconds: float | None) -> bool:
    return seconds is not None and time.monotonic() - begun >= seconds


def _eta(begun: float, done: int, left: int, seconds: float | None) -> float:
    """Seconds left, by the pace so far, by the budget where there is one."""
    spent = time.monotonic() - begun
    pace = spent / done * left if done else 30.0 + 0.05 * left
    return pace if seconds is None else max(0.0, min(pace, seconds - spent)) if done else pace
