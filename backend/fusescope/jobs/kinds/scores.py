"""How sparse a model's attention probabilities are on an input: the job behind the score section of the Masks
page."""

from __future__ import annotations

TITLE = "Score sparsity"
KEYS = ("model", "case", "dtype", "device", "checkpoint", "input", "tile", "seed")


def validate(spec: dict) -> dict:
    """{model, case, dtype, device, checkpoint, input, tile, seed}, complete. ValueError or TypeError.

    input: "random", {"text": …, "tokenizer": folder} (one sequence) or {"tokens": file} (.npy, or one
    sequence a line); its length, cut at the case's seq, takes the place of batch, seq and lengths.
    """
    from fusescope import models
    from fusescope.analysis.scores import TILES
    from fusescope.core.records import DTYPES
    from fusescope.jobs.kinds import accuracy
    from fusescope.models.scores import input

    whole = accuracy.complete(spec, KEYS, {"dtype": "float32", "input": "random", "tile": 64})
    if whole["dtype"] not in DTYPES:
        raise ValueError(f"dtype is {', '.join(DTYPES)}, not {whole['dtype']!r}")
    if isinstance(whole["tile"], bool) or whole["tile"] not in TILES:
        raise ValueError(f"the side of a tile is {', '.join(map(str, TILES))}, not {whole['tile']!r}")
    if whole["case"].get("phase") == "decode":
        raise ValueError("scores are looked at for a whole prompt: phase is prefill, not decode")
    accuracy.check_size(whole["case"])
    given = input.check(whole["input"])
    if given != "random":
        config = models.config(whole["model"], whole["case"], whole["checkpoint"])
        if config.patch:
            raise ValueError(f"{whole['model']} takes images, not tokens: input is random")
        if "tokens" in given:
            fitted, _ = input.fitted(
                whole["model"], whole["case"], input.tokens(given["tokens"]), config.vocab
            )
            accuracy.check_size(models.validate(whole["model"], fitted, whole["checkpoint"]))
    return whole | {"input": given}


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.models.scores import job

    job.run(spec, reporter)
