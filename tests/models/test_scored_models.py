"""Models with soft-capped scores (Gemma 2) and sinks (gpt-oss), which deny sdpa for these alone."""

import pytest

from fusescope.models import register_attention
from fusescope.models.hugging_face import attend
from tests.models.architectures import verdict


@pytest.mark.parametrize(
    "name, other", (("Gemma2ForCausalLM", {"softcap": 0.05}), ("GptOssForCausalLM", {"s_aux": None}))
)
def test_it_equals_eager_because_of_them(name, other, monkeypatch):
    assert verdict.of(name).state == "equal"
    own = attend.forward
    monkeypatch.setattr(attend, "forward", lambda *args, **given: own(*args, **given | other))
    try:
        assert verdict.of(name).state == "different"
    finally:
        monkeypatch.undo()
        register_attention()


@pytest.mark.parametrize("name", ("DeepseekV4ForCausalLM", "MiMoV2FlashForCausalLM"))
def test_who_denies_flex_too_is_refused_by_name(name):
    found = verdict.of(name)
    assert found.state == "refused" and "_supports_sdpa" in found.why
