"""A model that this project does not list, dropped in as one file of tables."""

import pytest

from fusescope import models
from fusescope.models.run import build
from tests.models.modes_tools import QUICK, worst
from tests.models.tiny_models import built, case, save

pytestmark = pytest.mark.usefixtures("cpu_kernels")

_DISTILBERT = """
from fusescope.models.describe.family import Config, Weight, dense, norm
from fusescope.models.describe.settings import Settings

KIND, PHASES, PREFIXES, IGNORED, STRUCTURE = "encoder", (), ("", "distilbert."), ("vocab_*",), "norm after"
NAMES = {"distilbert": Config("distilbert", 768, 6, 12, 64, 3072, vocab=30522, positions=512)}
TITLE = {"distilbert": "DistilBERT"}
SETTINGS = Settings(
    "DistilBERT", "distilbert", "DistilBertConfig", "DistilBertModel",
    {"hidden": "dim", "layers": "n_layers", "heads": "n_heads", "ffn": "hidden_dim", "vocab": "vocab_size",
     "positions": "max_position_embeddings", "activation": "activation"},
    {"activation": "gelu"},
)
MODULES = {"out": "transformer.layer.{i}"}
at, pos = "transformer.layer.{i}", "embeddings.position_embeddings"
WEIGHTS = (
    Weight("embeddings.word_embeddings.weight", ("vocab", "hidden"), "embeddings/word", "word"),
    Weight(f"{pos}.weight", ("positions", "hidden"), "embeddings/position", "position"),
    *norm("embeddings.LayerNorm", "embeddings/LayerNorm", "norm"),
    *dense(f"{at}.attention.q_lin", "inner", "hidden", "attention", "layers.{i}.qkv"),
    *dense(f"{at}.attention.k_lin", "inner", "hidden", "attention", "layers.{i}.qkv"),
    *dense(f"{at}.attention.v_lin", "inner", "hidden", "attention", "layers.{i}.qkv"),
    *dense(f"{at}.attention.out_lin", "hidden", "inner", "attention", "layers.{i}.output"),
    *norm(f"{at}.sa_layer_norm", "attention", "layers.{i}.norm1"),
    *dense(f"{at}.ffn.lin1", "ffn", "hidden", "ffn", "layers.{i}.ffn1"),
    *dense(f"{at}.ffn.lin2", "hidden", "ffn", "ffn", "layers.{i}.ffn2"),
    *norm(f"{at}.output_layer_norm", "ffn", "layers.{i}.norm2"),
)
"""


@pytest.fixture
def distilbert(tmp_path, monkeypatch):
    """Its name, once the file is where families are looked for."""
    from fusescope.models import families
    from fusescope.models.describe import catalog

    (tmp_path / "distilbert.py").write_text(_DISTILBERT)
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    kept = (catalog._families, catalog._parameters)
    for function in kept:
        function.cache_clear()
    yield "distilbert"
    for function in kept:
        function.cache_clear()


def test_a_model_of_a_known_structure_is_one_table(distilbert, tmp_path):
    """It is built, run every way, counted, and loaded from a checkpoint."""
    asked = case(distilbert, lengths="9+17")
    for way in QUICK:
        assert max(worst(distilbert, asked, way)) < 1, way
    model = built(distilbert)
    assert models.names()[-1] == distilbert
    counted = models.anatomy(distilbert, asked)[0].count
    assert counted == sum(p.numel() for p in model.module.parameters())
    saved = save(tmp_path / "there", distilbert, "distilbert.")
    again = build.build(
        distilbert,
        models.validate(distilbert, {"seq": 17}, str(tmp_path / "there")),
        "float32",
        checkpoint=str(tmp_path / "there"),
    )
    assert all(
        (p == q).all() for p, q in zip(saved.module.parameters(), again.module.parameters(), strict=True)
    )
