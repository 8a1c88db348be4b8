"""Models that compute attention themselves are refused under attn_implementation="fusescope": when they are
loaded, at the latest in their first forward, never by a wrong result."""

import copy
import pickle

import pytest
import torch
import transformers
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.models import register_attention
from fusescope.models.hugging_face import scope

WIDTH = dict(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=99)
OWN = {
    "BloomForCausalLM": dict(hidden_size=64, n_layer=1, n_head=2, vocab_size=99),
    "FalconForCausalLM": WIDTH,
    "GPTJForCausalLM": dict(n_embd=64, n_layer=1, n_head=2, rotary_dim=16, vocab_size=99),
    "MptForCausalLM": dict(d_model=64, n_layers=1, n_heads=2, vocab_size=99),
    "LongformerForMaskedLM": WIDTH | dict(attention_window=4),
    "MPNetModel": WIDTH,
}


@pytest.fixture(scope="module", autouse=True)
def calls():
    kernels.load("cpu")
    return register_attention()


def _config(name: str):
    return getattr(transformers, name).config_class(**OWN[name])


@pytest.mark.parametrize("name", OWN)
def test_refused_when_built(name):
    with pytest.raises(
        Unsupported, match=f'{name} does not support attn_implementation="fusescope".*"eager"'
    ):
        getattr(transformers, name)._from_config(_config(name), attn_implementation="fusescope")


def test_refused_when_loaded_and_when_switched(tmp_path):
    model = transformers.BloomForCausalLM(_config("BloomForCausalLM"))
    before = model.config._attn_implementation
    with pytest.raises(Unsupported, match="BloomForCausalLM does not support"):
        model.set_attn_implementation("fusescope")
    assert model.config._attn_implementation == before
    model.save_pretrained(tmp_path)
    with pytest.raises(Unsupported, match="BloomForCausalLM does not support"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="fusescope")


def test_a_part_may_keep_eager():
    """Donut: a Swin encoder with attention of its own, a decoder that asks the registry."""
    swin = transformers.DonutSwinConfig(
        image_size=32, patch_size=4, embed_dim=32, depths=[1, 1], num_heads=[2, 2], window_size=4
    )
    decoder = transformers.BartConfig(
        d_model=64, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=64, vocab_size=99
    )
    decoder.is_decoder = decoder.add_cross_attention = True
    pair = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(swin, decoder)
    kind = transformers.VisionEncoderDecoderModel
    with pytest.raises(Unsupported, match=r"DonutSwinModel does not support.*sub-config"):
        kind._from_config(copy.deepcopy(pair), attn_implementation="fusescope")
    mixed = kind._from_config(
        copy.deepcopy(pair), attn_implementation={"encoder": "eager", "decoder": "fusescope"}
    )
    assert mixed.decoder.config._attn_implementation == "fusescope"


class OwnAttention(nn.Module):
    """As in remote code: attention of its own, the registry named but not asked for what it computes."""

    def __init__(self, config):
        super().__init__()
        self.config, self.project = config, nn.Linear(64, 64)

    def forward(self, hidden, mask, asks):
        if asks:
            attention = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
            heads = hidden.unflatten(-1, (2, 32)).transpose(1, 2)
            return attention(self, heads, heads, heads, mask)[0].flatten(2)
        scores = hidden @ self.project(hidden).mT
        return (scores if mask is None else scores + mask[:, 0]).softmax(-1) @ hidden


class Remote(transformers.LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed, self.attention = nn.Embedding(99, 64), OwnAttention(config)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, asks=False):
        hidden = self.embed(input_ids)
        mask = transformers.masking_utils.create_causal_mask(
            config=self.config,
            inputs_embeds=hidden,
            attention_mask=attention_mask,
            past_key_values=None,
        )
        return self.attention(hidden, mask, asks)


def _remote():
    return Remote._from_config(transformers.LlamaConfig(**WIDTH), attn_implementation="fusescope").eval()


@pytest.mark.parametrize("padded", [False, True])
def test_a_mask_that_is_made_and_not_attended_by_is_an_error(padded):
    """Without padding the mask is None, which attention of its own would take for "every key"."""
    model = _remote()
    ids, there = torch.randint(3, 99, (2, 20)), torch.ones(2, 20, dtype=torch.long)
    there[0, :5] = 0
    given = {"attention_mask": there} if padded else {}
    with torch.no_grad():
        for _ in range(2):
            with pytest.raises(Unsupported, match=r"Remote does not support .*computed attention by itself"):
                model(ids, **given)
        assert scope.current() is None
        with pytest.raises(IndexError):
            model(ids + 1000)
        assert scope.current() is None, "a forward that raises ends its scope"
        model(ids, asks=True, **given)
        model.config._attn_implementation = "eager"
        model(ids, **given)


def test_watched_models_can_be_copied_and_pickled():
    bert = transformers.BertModel._from_config(
        transformers.BertConfig(**WIDTH), attn_implementation="fusescope"
    ).eval()
    ids = torch.randint(3, 99, (1, 20))
    with torch.no_grad():
        expected = bert(ids).last_hidden_state
        for other in (copy.deepcopy(bert), pickle.loads(pickle.dumps(bert))):
            assert torch.equal(other(ids).last_hidden_state, expected)
    bert.set_attn_implementation("eager")
    bert.set_attn_implementation("fusescope")
    assert len(bert._forward_hooks) == 1


def _bert(attention: str):
    torch.manual_seed(0)
    config = transformers.BertConfig(**WIDTH, initializer_range=0.3)
    return transformers.BertModel._from_config(config, attn_implementation=attention).eval()


@pytest.mark.parametrize("how", ["data", "numpy", "in place", "another"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_mask_whose_values_change_between_calls(how, mode):
    """However they change: no count of versions sees ``.data`` and NumPy."""
    eager, ours = _bert("eager"), _bert("fusescope")
    ids = torch.randint(3, 99, (1, 70))
    with mode():
        keep = torch.ones(1, 1, 70, 70, dtype=torch.bool)
        first = ours(ids, attention_mask=keep).last_hidden_state
        if how == "data":
            keep.data[..., 3:] = False
        elif how == "numpy":
            keep.numpy()[..., 3:] = False
        elif how == "in place":
            keep[..., 3:] = False
        else:
            keep = keep.clone()
            keep[..., 3:] = False
        second = ours(ids, attention_mask=keep).last_hidden_state
        added = torch.zeros(keep.shape).masked_fill(~keep, -1e9)
        expected = eager(ids, attention_mask=added).last_hidden_state
    assert (first - second).abs().max() > 1e-2
    assert (second - expected).abs().max() < 2e-5


def test_the_lists_of_a_mask_are_built_once_a_forward(monkeypatch):
    from fusescope.ops import attention

    model = transformers.BertModel._from_config(
        transformers.BertConfig(**WIDTH | dict(num_hidden_layers=3)), attn_implementation="fusescope"
    ).eval()
    made, prepare = [], attention.prepare
    monkeypatch.setattr(attention, "prepare", lambda *given: made.append(given) or prepare(*given))
    ids, there = torch.randint(3, 99, (2, 40)), torch.ones(2, 40, dtype=torch.long)
    there[0, 30:] = 0
    with torch.no_grad():
        for number in (1, 2):
            model(ids, attention_mask=there)
            assert len(made) == number


SMALL = {
    "BertModel": WIDTH,
    "LlamaModel": WIDTH,
    "GPT2Model": dict(n_embd=64, n_layer=1, n_head=2, vocab_size=99, bos_token_id=0, eos_token_id=0),
}


@pytest.mark.parametrize("by", ["call", "config"])
@pytest.mark.parametrize("name", SMALL)
def test_attention_weights_are_refused_by_the_models_name(name, by):
    cls = getattr(transformers, name)
    config = cls.config_class(**SMALL[name], **({"output_attentions": True} if by == "config" else {}))
    model = cls._from_config(config, attn_implementation="fusescope").eval()
    given = {"output_attentions": True} if by == "call" else {}
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        with pytest.raises(Unsupported, match=f'{name}: .*no attention weights .*use "eager"'):
            model(ids, **given)
        assert model(ids, output_attentions=False).last_hidden_state.shape == (1, 3, 64)
