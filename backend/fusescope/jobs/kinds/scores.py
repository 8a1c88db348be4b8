"""How sparse a model's attention probabilities are on an input: the job behind the score section of the Masks
page."""

from __future__ import annotations

from fusescope.analysis.scores import TILES
from fusescope.core.schema import Parameter
from fusescope.jobs.spec import model
from fusescope.jobs.spec.common import DTYPE
from fusescope.models.scores import input

TITLE = "Score sparsity"
PARAMETERS = (
    DTYPE,
    Parameter("input", "any", "random", further=input.check),
    Parameter("tile", "choice", 64, "side of a tile", choices=TILES),
)


def validate(spec: dict) -> dict:
    """{model, case, dtype, device, checkpoint, input, tile, seed}, complete. ValueError in one sentence.

    input: "random", {"text": …, "tokenizer": folder} (one sequence) or {"tokens": file} (.npy, or one
    sequence a line); its length, cut at the case's seq, takes the place of batch, seq and lengths.
    """
    from fusescope import models

    whole = model.complete(spec, PARAMETERS)
    if whole["case"].get("phase") == "decode":
        raise ValueError("scores are those of a whole prompt: phase must be prefill, not decode")
    given = whole["input"]
    if given != "random":
        config = models.config(whole["model"], whole["case"], whole["checkpoint"])
        if config.patch:
            raise ValueError(f"{whole['model']} takes images, not tokens: input is random")
        if "tokens" in given:
            fitted, _ = input.fitted(
                whole["model"], whole["case"], input.tokens(given["tokens"]), config.vocab
            )
            model.check_size(models.validate(whole["model"], fitted, whole["checkpoint"]))
    return whole


def name(spec: dict) -> str:
    return f"attention scores of {spec.get('model', '')}"


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.models.scores import job

    job.run(spec, reporter)
