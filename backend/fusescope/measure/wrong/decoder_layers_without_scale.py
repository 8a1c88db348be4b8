"""The last product of each layer without its scales."""

from fusescope.measure.wrong import DECODER_LAYERS
from fusescope.ops.layer.decoder_layers import decoder_layers

ON = {"decoder_layers": DECODER_LAYERS | {"layer": "qwen3", "weights": "int8"}}
DTYPES = ("float16", "bfloat16")


def wrong(x, layers, *given, **how):
    same = [layer._replace(second_scales=layer.second_scales.new_ones(x.shape[-1])) for layer in layers]
    return decoder_layers(x, same, *given, **how, impl="cpu" if x.is_cpu else "auto")
