"""The bias of queries, keys and values multiplied by the scales of its outputs too."""

from fusescope.measure.wrong import DECODER_LAYERS
from fusescope.ops.layer.decoder_layers import decoder_layers

ON = {"decoder_layers": DECODER_LAYERS | {"layer": "gpt2", "weights": "fp8"}}
DTYPES = ("float16", "bfloat16")


def wrong(x, layers, *given, **how):
    same = [layer._replace(qkv_bias=layer.qkv_bias * layer.qkv_scales.to(x.dtype)) for layer in layers]
    return decoder_layers(x, same, *given, **how, impl="cpu" if x.is_cpu else "auto")
