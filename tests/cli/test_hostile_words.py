"""Whatever is typed, a verb ends with its answer or with one sentence: never a traceback, never a fault.

The words come from the verbs' own parsers: every option and argument of each, given values that are too
large, negative, empty, of another type, not text, or paths that lead nowhere good. Nothing is started.
"""

import argparse
import itertools
import os
import random
import re

import pytest

from fusescope import cli
from fusescope.cli import follow
from fusescope.core.errors import RunError
from fusescope.jobs import submit
from fusescope.jobs.cluster import certificates

pytestmark = pytest.mark.slow

VALUES = [
    *("", " ", ",", "=", ":", "-", "--", "-1", "0", "1e400", "nan", "inf", "-inf", "0x10", "1_000", "½", "١"),
    *(str(2**31), str(2**63), str(2**64), "9" * 5000, "9" * 200000),
    *(
        "\udcff",
        "a\x1b]52;c;\x07",
        "\u202eabc",
        "a\nb",
        "é" * 300,
        "[]",
        "{}",
        "null",
        "true",
        "None",
        "%s%n",
    ),
    *("1,,2", "k=v", "k=", "=v", "seq=512,seq=512", "causal:window=1", "bigbird:window=x"),
    *("document:lengths=", "random:density=nan", "dilated:window=99999999999999999999"),
    *("file:", "file:/dev/null", "file:nowhere.npy", "/", ".", "..", "~", "/dev/null", "/dev/full"),
    *("/proc/self/mem", "../../etc/passwd", "/root/nowhere/x", "nowhere.py:f", "/dev/null:f", "os:system"),
    *("cuda:99", "cuda:-1", "cuda", "CPU", "a:b:c", "20200101-000000-bench-abcdef", "2020", "*", "?"),
    *("recorded", "0101010101010101", "2" * 16, "1" * 17),
]
SHARE = int(os.environ.get("FUSESCOPE_HOSTILE_WORDS", 120))  # command lines of each verb; 0: all
BASE = {  # words that a verb takes, short of starting anything
    "bench": ["add", "--impl", "eager", "--device", "cpu"],
    "build": ["nosuch"],
    "chooser": [],
    "doctor": [],
    "generate": ["6826"],
    "import": ["nowhere.json"],
    "mask": ["causal", "--seq", "8"],
    "model": ["bert-base", "--impl", "eager", "--device", "cpu"],
    "occupancy": ["--cc", "9.0", "--block", "256", "--registers", "64"],
    "predict": ["6826", "--data", "nowhere"],
    "profile": ["add", "--device", "cpu"],
    "scores": ["bert-base", "--device", "cpu"],
    "search": ["--device", "cpu"],
    "selfcheck": [],
    "translate": ["6826"],
    "traverse": ["0", "3", "--device", "cpu"],
}
ACTIONS = {  # of runs
    "list": [],
    "compare": ["nowhere", "nowhere"],
    "import": ["nowhere"],
}
SKIPPED = {"-h", "--help", "--json", "--fit", "--clean"}


@pytest.fixture(autouse=True)
def harmless(profiles, tmp_path, monkeypatch):
    """Nothing is started, built or written but in a folder of this test."""

    def start(kind, spec, *_, **__):
        submit.validate(kind, spec)
        raise RunError("nothing is started in this test")

    make = certificates.make

    def here(folder, *days):
        if not folder.resolve().is_relative_to(tmp_path):
            raise RunError("nothing is written outside of this test")
        return make(folder, *days)

    monkeypatch.setattr(submit, "submit", start)
    monkeypatch.setattr(certificates, "make", here)
    monkeypatch.setattr(follow.submit, "resume", lambda *_: pytest.fail("nothing can be resumed here"))
    monkeypatch.setenv("FUSESCOPE_BUILD", str(tmp_path / "build"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def parsers():
    """(words before its own, parser) of each verb and of each action of a verb."""
    for verb in cli.names():
        words = BASE.get(verb, [])
        parser, _ = cli.parser_of(verb, words)
        nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        for name, sub in nested[0].choices.items() if nested else ():
            yield [verb, name], ACTIONS.get(name, ["nowhere"]), sub
        if not nested:
            yield [verb], words, parser


PARSERS = list(parsers())


def lines(name, words, parser):
    """Command lines in which one option, or one word, is hostile."""
    for action in parser._actions:
        flags = [f for f in action.option_strings if f not in SKIPPED]
        if flags and action.nargs != 0:
            for value in VALUES:
                yield [*name, *words, f"{flags[-1]}={value}"]
            yield [*name, *words, flags[-1]]
        elif flags:
            yield [*name, *words, f"{flags[-1]}=x"]
    for place, value in itertools.product(range(len(words)), VALUES):
        if not words[place].startswith("--"):
            yield [*name, *words[:place], value, *words[place + 1 :]]
    yield [*name, *words, "--nosuch"]
    yield [*name, *words, *["extra"] * 40]


@pytest.mark.sample(3, "selfcheck", "import", "runs import")
@pytest.mark.parametrize("name,words,parser", PARSERS, ids=[" ".join(name) for name, *_ in PARSERS])
def test_hostile_words_end_in_one_sentence(name, words, parser, call):
    every, seed = list(lines(name, words, parser)), random.randrange(2**32)
    bad = []
    for line in random.Random(seed).sample(every, min(SHARE, len(every))) if SHARE else every:
        if name == ["build"] and line[1:2] == ["--"]:
            continue  # builds everything
        got = call(*line)
        faults = [f for f in ("Traceback", "a fault of FuseScope", "\x1b") if f in got.err + got.out]
        errors = re.findall(r"(?m)^error: ", got.err)
        if faults or got.code not in (0, 1, 2) or (got.code and len(errors) != 1) or len(got.err) > 20_000:
            shown = [w if len(w) < 60 else w[:57] + "…" for w in line]
            bad.append(f"{shown}: {got.code} {faults} {got.err[:300]!r}")
    assert not bad, f"seed {seed}: {len(bad)} command lines, the first:\n" + "\n".join(bad[:12])


def test_token_ids_from_a_device_without_an_end_are_refused(call):
    got = call("scores", "bert-base", "--device", "cpu", "--tokens=/dev/full")
    assert got.code == 2 and "is no regular file" in got.err


def test_every_verb_is_tried():
    assert {name[0] for name, *_ in PARSERS} == set(cli.names())
    assert os.path.basename(os.getcwd()) == "here"
