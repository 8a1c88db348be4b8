"""Fusion scheme 1001111110110010 (value 40882): a Transformer layer in 7 segments.

batch 8, seq 512, 12 heads of 64, ffn 3072, mask
bigbird:window=64,global_tokens=64,random_blocks=3,block=64,seed=0, float16 on cuda:0

    0-1    linear                   QKV GEMM, QKV bias
    2-7    attention                head split, scores GEMM with scale, mask, softmax, context GEMM, head
                                    merge
    8      torch                    output GEMM
    9-10   bias_residual_layernorm  output bias + residual, LayerNorm
    11-12  linear                   FFN GEMM 1, bias + GELU
    13     torch                    FFN GEMM 2
    14     bias_residual_layernorm  bias + residual + LayerNorm

`python FILE` checks it against the unfused layer in float64 and times it; FuseScope is installed by `pip install -e .`
in its folder, which is the supported way to import fusescope from anywhere.
"""

import torch
import torch.nn.functional as F

from fusescope.ops.attention import attention
from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
from fusescope.ops.layer.linear import linear
from fusescope.search.runtime import compiled, main

HEADS, HEAD_DIM, EPS = 12, 64, 1e-12


def operators_0_to_1(x, qkv_weight, qkv_bias):
    # 0 QKV GEMM, 1 QKV bias
    qkv = linear(x, qkv_weight, qkv_bias)
    return qkv


def operators_2_to_7(qkv, plan):
    # 2 head split
    q, k, v = qkv.view(*qkv.shape[:2], 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4).unbind(0)  # views
    # 3 scores GEMM with scale, 4 mask, 5 softmax, 6 context GEMM
    context = attention(q, k, v, plan, out_bshd=True)  # heads side by side
    # 7 head merge
    merged = context.transpose(1, 2).flatten(2)  # a view
    return merged


def operator_8(merged, attention_weight):
    # 8 output GEMM
    attention_product = F.linear(merged, attention_weight)
    return attention_product


def operators_9_to_10(attention_product, attention_bias, x, norm1_weight, norm1_bias):
    # 9 output bias + residual, 10 LayerNorm
    attended = bias_residual_layernorm(attention_product, attention_bias, x, norm1_weight, norm1_bias, EPS)
    return attended


def operators_11_to_12(attended, ffn1_weight, ffn1_bias):
    # 11 FFN GEMM 1, 12 bias + GELU
    intermediate = linear(attended, ffn1_weight, ffn1_bias, "gelu")
    return intermediate


def operator_13(intermediate, ffn2_weight):
    # 13 FFN GEMM 2
    ffn2_product = F.linear(intermediate, ffn2_weight)
    return ffn2_product


def operator_14(ffn2_product, ffn2_bias, attended, norm2_weight, norm2_bias):
    # 14 bias + residual + LayerNorm
    out = bias_residual_layernorm(ffn2_product, ffn2_bias, attended, norm2_weight, norm2_bias, EPS)
    return out


def layer(
    x, qkv_weight, qkv_bias,
    attention_weight, attention_bias, norm1_weight, norm1_bias,
    ffn1_weight, ffn1_bias, ffn2_weight, ffn2_bias, norm2_weight, norm2_bias,
    mask=None, empty_rows=None, plan=None,
):  # fmt: skip
    qkv = operators_0_to_1(x, qkv_weight, qkv_bias)
    merged = operators_2_to_7(qkv, plan)
    attention_product = operator_8(merged, attention_weight)
    attended = operators_9_to_10(attention_product, attention_bias, x, norm1_weight, norm1_bias)
    intermediate = operators_11_to_12(attended, ffn1_weight, ffn1_bias)
    ffn2_product = operator_13(intermediate, ffn2_weight)
    out = operator_14(ffn2_product, ffn2_bias, attended, norm2_weight, norm2_bias)
    return out


if __name__ == "__main__":
    main(
        layer,
        '1001111110110010',
        batch=8,
        seq=512,
        heads=12,
        head_dim=64,
        ffn=3072,
        mask='bigbird:window=64,global_tokens=64,random_blocks=3,block=64,seed=0',
        dtype='float16',
        device='cuda:0',
        compiler='inductor',
    )
