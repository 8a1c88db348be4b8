"""Every class of the installed transformers under attn_implementation="fusescope": equal to eager, or a clear
refusal, as docs/models-supported.md says."""

import pytest
import torch
import transformers

from fusescope import kernels
from fusescope.models import register_attention
from fusescope.models.hugging_face import attend, scope, support
from tests.models.architectures import supported, tiny, verdict

EXPECTED = supported.expected(supported.FILE.read_text())
NAMES = sorted(EXPECTED)
SOME = NAMES[::10]
SEEN = ("LlamaForCausalLM", "BertForMaskedLM", "T5ForConditionalGeneration", "ViTForImageClassification")


@pytest.fixture(scope="module", autouse=True)
def quiet():
    kernels.load("cpu")
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(100)
    yield
    transformers.logging.set_verbosity(before)


def _hold(name: str) -> None:
    found = verdict.of(name)
    assert found.state not in verdict.WRONG, found
    if EXPECTED[name] != "not compared":  # which another machine, with timm, may compare
        assert found.state == EXPECTED[name], found


@pytest.mark.slow
def test_the_document_has_every_class():
    assert set(NAMES) == set(tiny.classes())
    assert f"transformers {transformers.__version__}," in supported.FILE.read_text()


def test_the_document_is_what_is_written_of_it():
    """Reading gives back what was written, for each state."""
    states = dict(zip(sorted(tiny.classes()), ("equal", "refused", "refused in forward", "not run")))
    written = supported.text({name: verdict.Verdict(state, "why; so") for name, state in states.items()})
    assert supported.expected(written) == {
        name: "not compared" if state == "not run" else state for name, state in states.items()
    }


@pytest.mark.sample(3, "UnlimitedOcrModel", "Kimi_K25Model")
@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_some_architectures(name):
    _hold(name)


@pytest.mark.archs
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SOME])
def test_all_other_architectures(name):
    _hold(name)


class TestTheVerdictCanFail:
    def test_a_mask_that_is_misread(self, monkeypatch):
        """Bloom as it was before it was refused."""
        assert verdict.of("BloomForCausalLM").state == "refused"
        monkeypatch.setattr(support, "why_not", lambda model: None)
        assert verdict.of("BloomForCausalLM").state == "refused in forward"
        monkeypatch.setattr(scope, "watch", lambda model, name: None)
        assert verdict.of("BloomForCausalLM").state == "different"

    @pytest.mark.parametrize("name", SEEN)
    def test_attention_without_its_mask_or_scale(self, name, monkeypatch):
        own = attend.forward

        def wrong(module, query, key, value, attention_mask, **given):
            given["scaling"] = 0.3 if "ViT" in name else given.get("scaling")
            shape = (1, 1, query.shape[2], key.shape[2])
            every = torch.ones(shape, dtype=torch.bool)
            return own(module, query, key, value, every, **given)

        assert verdict.of(name).state == "equal"
        monkeypatch.setattr(attend, "forward", wrong)
        try:
            assert verdict.of(name).state == "different"
        finally:
            monkeypatch.undo()
            register_attention()
