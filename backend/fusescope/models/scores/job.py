"""How sparse the attention probabilities of a model are on an input: a figure a layer and head, and what
skipping tiles would cost."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping
from typing import Any

import torch

from fusescope.analysis import scores
from fusescope.core.machine import environment
from fusescope.models.accuracy import exact as accuracy_exact
from fusescope.models.accuracy import hooks
from fusescope.models.describe import cases, catalog
from fusescope.models.run import build
from fusescope.models.scores import input

SCHEMA = 1
_DECADES = 12.0
"""A heat map's byte is 0 for zero, else 1 … 255 for 10^-12 … 1 in even steps of the logarithm."""


def run(spec: Mapping[str, Any], reporter) -> None:
    """The job kind `scores`: artifacts/scores.json.gz; see jobs/kinds/scores.py for the spec."""
    reporter.environment(**environment.collect(spec["device"]))
    case, ids = dict(spec["case"]), None
    if spec["input"] != "random":
        given = spec["input"]
        found = (
            input.tokens(given["tokens"])
            if "tokens" in given
            else input.encode(given["text"], given["tokenizer"])
        )
        vocab = catalog.config(spec["model"], case, spec["checkpoint"]).vocab
        case, ids = input.fitted(spec["model"], case, found, vocab)
        case = cases.validate(spec["model"], case, spec["checkpoint"])
    reporter.progress(0, case["layers"], "building the model")
    model = build.build(spec["model"], case, spec["dtype"], spec["device"], spec["seed"], spec["checkpoint"])
    inputs = build.inputs(model, case, spec["seed"])
    for row, sequence in enumerate(ids or ()):
        inputs["input_ids"][row, : len(sequence)] = inputs["input_ids"].new_tensor(sequence)

    def step(done: int, name: str) -> None:
        reporter.check()
        reporter.progress(min(done, case["layers"]), case["layers"], name)

    layers = look(model, inputs, spec["dtype"], spec["tile"], step)
    lengths = [int(n) for n in inputs["lengths"]]
    report = {
        "schema": SCHEMA,
        "model": spec["model"],
        "case": case,
        "dtype": spec["dtype"],
        "input": spec["input"],
        "tile": spec["tile"],
        "lengths": lengths,
        "thresholds": scores.THRESHOLDS,
        "bins": scores.BINS,
        "padding": scores.padding(lengths, case["seq"]),
        "layers": layers,
    }
    with gzip.open(reporter.artifact("scores.json.gz"), "wt", encoding="utf-8") as file:
        json.dump(report, file, separators=(",", ":"))
    reporter.progress(case["layers"], case["layers"], words(report))


def words(report: Mapping[str, Any]) -> str:
    """The report in one line."""
    heads = [h for layer in report["layers"] for h in layer["heads"]]
    live = sum(h["live"] for h in heads) or 1
    at = report["thresholds"].index(1e-3) if 1e-3 in report["thresholds"] else 0
    below = sum(h["below"][at] for h in heads) / live
    return f"{below:.1%} of the kept probabilities are below 1e-3, in {len(heads)} heads"


def look(
    model, inputs: Mapping[str, Any], dtype: str, tile: int, step=lambda done, name: None
) -> list[dict[str, Any]]:
    """One dict an attention call, in order: {"name", "side" of a heat map's pixel, "heads": [{"live",
    "zeros", "below", "histogram", "entropy", "most_bits", "skip", "heat"}]}.

    Probabilities are computed in float64 from the queries and keys that the model has in ``dtype``, and
    counted as that dtype rounds them. Sequences of a batch are counted together, their real tokens alone; the
    heat map is of the first. Dropped rows and columns of padding do not count.
    """
    module = model.view("eager")
    names = {id(m): n for n, m in module.named_modules()}
    lengths, seq, found = [int(n) for n in inputs["lengths"]], inputs["case"]["seq"], []

    def visit(call, attention, query, key, value, mask, keywords):
        exact = accuracy_exact.attention(attention, query, key, value, mask, keywords)
        live = accuracy_exact.live(attention, query, key, mask, keywords)
        p = exact["probabilities"].to(query.dtype).float()
        v = value.repeat_interleave(query.shape[1] // value.shape[1], 1).float()
        step(len(found) + 1, names[id(attention)])
        found.append({"name": names[id(attention)]} | _layer(torch, p, v, live, lengths, seq, tile))
        return call(query, key, value)

    with torch.inference_mode(), hooks.attention_calls(visit):
        build.call(module, inputs)
    if not found:
        raise ValueError(
            f"{model.name} does not take its attention from the interface in this version of transformers"
        )
    return found


def _layer(torch, p, v, live, lengths, seq: int, tile: int) -> dict[str, Any]:
    """The figures of one call over the sequences of the batch."""
    parts, heads = [], p.shape[1]
    for i, n in enumerate(lengths):
        rows, keys = (n if size == seq else size for size in p.shape[-2:])
        one = p[i, :, :rows, :keys]
        kept = live.expand(p.shape[0], -1, *p.shape[-2:])[i, 0, :rows, :keys]
        parts.append((one, kept, scores.skippable(one, v[i, :, :keys], kept, tile, torch)))
    first = parts[0][0]
    heat, side = scores.heat(first, torch)
    counts = [scores.counts(one, kept, torch) for one, kept, _ in parts]
    histograms = [scores.histogram(one, kept, torch) for one, kept, _ in parts]
    bits = [scores.entropy(one, kept, torch) for one, kept, _ in parts]
    most = sum(scores.most_bits(kept) for _, kept, _ in parts) / len(parts)
    out = []
    for h in range(heads):
        skips = [skip[h] for _, _, skip in parts]
        out.append(
            {
                "live": sum(c["live"][h] for c in counts),
                "zeros": sum(c["zeros"][h] for c in counts),
                "below": [sum(column) for column in zip(*(c["below"][h] for c in counts), strict=True)],
                "histogram": [sum(column) for column in zip(*(x[h] for x in histograms), strict=True)],
                "entropy": sum(b[h] for b in bits) / len(bits),
                "most_bits": most,
                "skip": [_together(e) for e in zip(*skips, strict=True)],
                "heat": packed(heat[h]),
            }
        )
    return {"side": side, "shape": [len(heat[0]), len(heat[0][0])], "heads": out}


def _together(entries) -> dict[str, Any]:
    """One threshold over the sequences of a batch: counts added, errors as their root mean square."""
    entries = list(entries)
    squares = sum(e["error"] ** 2 for e in entries) / len(entries)
    return {k: sum(e[k] for e in entries) for k in ("tiles", "skipped", "lost")} | {
        "error": math.sqrt(squares)
    }


def packed(values: list[list[float]]) -> str:
    """A heat map as base64 of a byte a pixel (see _DECADES)."""
    bytes_ = bytearray()
    for row in values:
        for p in row:
            bytes_.append(0 if p <= 0 else 1 + round(254 * min(1.0, max(0.0, 1 + math.log10(p) / _DECADES))))
    return base64.b64encode(bytes(bytes_)).decode()
