"""The options of every verb that runs an operator on cases, and what they mean: cases, data type, device."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fusescope import models, ops
from fusescope.cli import cases as _cases
from fusescope.cli.numbers import integer, percent, seconds, seed
from fusescope.core.machine import environment
from fusescope.core.machine.archs import arch_of
from fusescope.core.records import DTYPES
from fusescope.core.schema import Parameter
from fusescope.jobs.spec import cluster


def add(parser, words, whole_models: bool = False) -> None:
    """--case, --dtype, --device, --title, and an option for each parameter of the operator (or model) that
    ``words`` name."""
    parser.add_argument(
        "--case", action="append", default=[], metavar="KEY=VALUE,…", help="one case; may be repeated"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="default float16 on a GPU, float32 on the CPU")
    parser.add_argument("--device", help="cuda:0 or cpu (default: the first GPU, else the CPU)")
    parser.add_argument("--title", default="", help="what the run is called in the library")
    known = [*ops.names(), *(models.names() if whole_models else ())]
    named = next((w for w in words if w in known), None)
    if whole_models and named is None:
        named = next((models.resolved(w) for w in words if _config_file(w)), None)
    if named:
        group = parser.add_argument_group(
            f"parameters of {named}", "lists make the cross product; a --case overrides them"
        )
        found = subject(named)[0]
        if whole_models and named not in ops.names() and not any(p.name == "phase" for p in found):
            refuse = {"type": partial(_refuse_phase, named), "help": argparse.SUPPRESS}
            group.add_argument("--phase", **refuse)
        for p in found:
            text = f"{p.help} (default {_default(p)})".replace("%", "%%")
            group.add_argument(
                f"--{_cases.option(p)}", dest=f"axis_{p.name}", action="append", metavar="V,V", help=text
            )


def _refuse_phase(name: str, phase: str) -> str:
    """The reason why a model has no phases, as argparse says it."""
    try:
        models.validate(name, {"phase": phase})
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return phase


def _default(p) -> str:
    return "from the others" if p.default is None and not p.default_help else p.default_help or str(p.default)


def _config_file(word: str) -> bool:
    path = Path(word).expanduser()
    return models.is_path(word) and (path / "config.json" if path.suffix != ".json" else path).is_file()


def add_sampling(parser, budget: str, cache: str | None = None, deadline: str | None = None) -> None:
    """--budget, --seed and, where they are given, --cache and --deadline: how a comparison is sampled.
    cache: the default; budget and deadline: what the times are of."""
    if cache:
        parser.add_argument(
            "--cache",
            choices=("warm", "cold", "both"),
            default=cache,
            help="state of the caches before a sample",
        )
    parser.add_argument("--budget", type=seconds(), metavar="SECONDS", help=budget)
    if deadline:
        parser.add_argument("--deadline", type=seconds(), metavar="SECONDS", help=deadline)
    parser.add_argument("--seed", type=seed(), help="seed of the inputs and of the order of rounds")


def add_certainty(parser) -> None:
    """--same-within, --processes and --wait-idle: what a comparison claims, for what and on what it holds."""
    parser.add_argument(
        "--same-within",
        type=percent(below=50),
        metavar="PERCENT",
        help="how far a speed-up may lie from 1 and still count as the same (default 1)",
    )
    parser.add_argument(
        "--processes",
        type=integer(1, 30),
        metavar="K",
        help="measure in K fresh processes, one after the other; the intervals hold for a further process "
        "then (K of 3 or more; default 1: they hold within one process)",
    )
    parser.add_argument(
        "--wait-idle",
        type=seconds(),
        metavar="S",
        help="before samples are taken, wait for idle CPUs, up to S seconds in all (measurements on the CPU; "
        "default 0)",
    )


def add_cluster(parser) -> None:
    """--cluster: whose devices measure."""
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        help="share the work among workers, a device each: local (every GPU of this machine), local:N, "
        "tcp://HOST:PORT or slurm (docs/cluster.md)",
    )


def certainty(args) -> dict[str, float | int]:
    """The options that were given, as keys of a BenchSpec."""
    within = None if args.same_within is None else args.same_within / 100
    found = {"same_within": within, "processes": args.processes, "wait_idle_s": args.wait_idle}
    return {k: v for k, v in found.items() if v is not None}


def device(args) -> tuple[str, str | None]:
    """(device, architecture of the GPU, None on the CPU): the requested one, else the first GPU, else the
    CPU."""
    chosen = "cuda:0" if args.device == "cuda" else args.device or environment.devices()[0]
    if cluster.is_elsewhere(vars(args)):
        return chosen, None  # of another machine, and not known here
    gpu = environment.gpu_of(chosen)
    return chosen, arch_of(*(int(n) for n in gpu["compute_capability"].split("."))) if gpu else None


def dtype(args, on: str) -> str:
    """The requested one; half precision on a GPU, single on the CPU."""
    return args.dtype or ("float32" if on == "cpu" else "float16")


def subject(name: str) -> tuple[tuple[Parameter, ...], Callable[[dict], dict]]:
    """(parameters, check of a case) of an operator, or of a model where no operator has that name."""
    if models.is_path(name) or (name in models.names() and name not in ops.names()):
        return models.parameters(name), partial(models.validate, name)
    return ops.load(name).PARAMETERS, ops.load(name).validate


def cases(args) -> list[dict]:
    """Complete cases: every --case crossed with the lists of the options; ValueError for what the operator
    does not take."""
    parameters, validate = subject(args.op)
    axes = {}
    for p in parameters:
        if given := getattr(args, f"axis_{p.name}"):
            axes[p.name] = [value for text in given for value in _cases.axis(p, text)]
    return _cases.crossed(parameters, validate, args.case, axes)
