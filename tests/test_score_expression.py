"""Score expressions as a language: what is read, what is refused and how, and what is written as C++."""

import math

import pytest
import torch

from fusescope.core.score import bounds_with, cpp, parse, tables_of
from fusescope.core.score.function import function

KINDS = {"slope": ("float", 1), "table": ("float", 2), "document": ("int", 1)}


def read(text):
    """The expression with those of KINDS that it names."""
    return parse(text, {name: of for name, of in KINDS.items() if name in text})


@pytest.mark.parametrize(
    "text, said",
    (
        ("", "has 1 to 2000 characters, not 0"),
        ("score + " * 400 + "1", "has 1 to 2000 characters, not 3201"),
        ("__import__('os')", 'has no character "\'"'),
        ("__import__(os)", "'__import__\\(os\\)': the functions are where, tanh"),
        ("score.__class__", "'score.__class__': a score expression is made of score, b, h, q, k, numbers"),
        ("score + slope.data_ptr()", "'slope.data_ptr\\(\\)': the functions are"),
        ("score + [i for i in k]", "'\\[i for i in k\\]': a score expression is made of"),
        ("(lambda: score)()", "has no character ':'"),
        ("score; b", "has no character ';'"),
        ("score\\\n", "has no character"),
        ("ｓcore", "has no character"),
        ("score if b else k", "a score expression is made of"),
        ("score ** 2", "'score \\*\\* 2': a score expression is made of"),
        ("score @ k", "has no character '@'"),
        ("score & 1", "has no character '&'"),
        ("score = 1", "cannot be read: invalid syntax"),
        ("score +", "cannot be read: invalid syntax"),
        ("((score)", "cannot be read: '\\(' was never closed"),
        ("(" * 300 + "score" + ")" * 300, "cannot be read: "),
        ("-" * 300 + "score", "is nested at most 40 deep"),
        ("abs(" * 60 + "score" + ")" * 60, "is nested at most 40 deep"),
        ("score + 1e999", "'1e\\+?309|1e999': a number is finite in fp32"),
        ("score + 1e39", "1.*: a number is finite in fp32"),
        ("score + 99999999999", "'99999999999': a whole number lies within 32 bits"),
        (
            "score * (2000000000 * 2000000000)",
            "a number is finite in fp32, at most 3.4e38, or a whole number within",
        ),
        ("score + 9" * 1 + "9" * 1500, "a whole number lies within 32 bits"),
        ("score + 1 / 0", "'1 / 0': a number is finite in fp32"),
        ("score + log(0)", "'log\\(0\\)': a number is finite in fp32"),
        ("score + 1j", "'1j': a score expression is made of"),
        ("score + True", "'True': a score expression is made of"),
        ("score + x", "'x': the names are score, b, h, q, k, where"),
        ("score + tanh", "'tanh': tanh is called with its arguments, as tanh\\(x\\)"),
        ("score + slope", "'slope': the tensor slope is read by its index, such as slope\\[h\\]"),
        ("score + slope[h, k]", "the tensor slope has 1 dimensions, and so many indices"),
        ("score + slope[:]", "has no character ':'"),
        ("score + slope[h][k]", "an index follows the name of a tensor"),
        ("score + slope[score]", "'slope\\[score\\]': an index is an integer"),
        ("score + slope[h / 2]", "an index is an integer"),
        ("score + slope[h < 2]", "an index is an integer"),
        ("score + other[h]", "an index follows the name of a tensor that is given"),
        ("score + tanh(score, 2)", "tanh takes 1 arguments without names"),
        ("score + tanh(x=score)", "tanh takes 1 arguments without names"),
        ("where(score, 1, 2)", "and, or, not and where's first argument take a condition"),
        ("score + (q < k)", "'score \\+ \\(q < k\\)': and, or, not and where's first"),
        ("score < 3", "the whole expression is a number, not a condition"),
        ("1 + k", "'1 \\+ k': the expression is of score"),
        ("score // 2", "// and % take an integer and a whole number above 0"),
        ("score + k // h", "// and % take an integer and a whole number above 0"),
        ("score + k % 0", "// and % take an integer and a whole number above 0"),
        ("score + k % -3", "// and % take an integer and a whole number above 0"),
        (
            "score + slope[k*k*k*k*k]",
            "an index, and an integer that is compared or divided by // or %, is within 62 bits",
        ),
        ("score + sqrt(score) + k < q is k", "a score expression is made of"),
        ("score + (k := 3)", "has no character ':'"),
        ("score, b", "a score expression is made of"),
        ("score and b", "and, or, not and where's first argument"),
        ("~score", "has no character '~'"),
    ),
)
def test_what_is_refused_is_named(text, said):
    with pytest.raises(ValueError, match=said) as refused:
        read(text)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_names_and_types_are_checked():
    for odd in (3, None, b"score"):
        with pytest.raises(TypeError, match="a score expression is a text, not"):
            parse(odd, {})
    with pytest.raises(ValueError, match="is not called h, which is a variable"):
        parse("score + h[k]", {"h": ("float", 1)})
    with pytest.raises(ValueError, match="is not called exp, which is a function"):
        parse("score + exp[k]", {"exp": ("float", 1)})
    with pytest.raises(ValueError, match="does not name the tensor slope"):
        parse("score", {"slope": ("float", 1)})
    nine = {f"t{i}": ("float", 1) for i in range(9)}
    with pytest.raises(ValueError, match="reads at most 8 tensors"):
        parse("score + " + " + ".join(f"{name}[k]" for name in nine), nine)


def test_words_of_cpp_are_names_like_any_other():
    named = {"float": ("float", 1), "template": ("int", 1), "return_": ("float", 2), "tables": ("float", 1)}
    text = "score + float[h] + return_[h, template[k]] * tables[q]"
    header = cpp.header(parse(text, named))
    code = header.partition("\n")[2]
    assert "template" not in code and "return_" not in code and header.startswith(f"// {text}\n")
    renamed = parse("score+t[h] + u[h,v[k]]*w[q]", dict(zip("tvuw", named.values())))
    assert cpp.header(renamed).partition("\n")[2] == code


def test_every_part_is_what_python_computes():
    """Of one element, with Python's own integers and math."""
    slope, table, document = (
        torch.randn(3),
        torch.randn(3, 9),
        torch.tensor([0, 0, 1, 2, 2], dtype=torch.int32),
    )
    b, h, q, k, score = 1, 2, -5, 3, 0.7
    s, t, d = slope.double(), table.double(), document.tolist()
    for text, expected in (
        ("score + slope[h] * (k - q)", score + s[2] * 8),
        ("20 * tanh(score / 20)", 20 * math.tanh(score / 20)),
        ("score + table[h, k - q - 3]", score + t[2, 5]),
        ("score + table[h + 9, q]", score + t[2, 0]),  # the nearest
        ("where(document[q] == document[k], score, -1e9)", -1e9),
        ("where(document[q - 1] != 0 or not q > k and h == 2, score, 1)", score),
        ("where(-9 < q < k <= 3, score, 1) + q // 3 + q % 3 + k // 2", score - 2 + 1 + 1),
        ("exp(score) - log(score) + sqrt(abs(-score))", math.exp(score) - math.log(score) + math.sqrt(score)),
        ("min(score, 0.5) * max(k, 7) / min(h, b) - +b", 0.5 * 7 - 1),
        ("where(k > 2, 1, 2) + where(k > 2, 0.1, 2) * score", 1 + 0.1 * score),
        ("score * (7 // 2 + 7 % 4 + 2 * 3 - 1) + k * k * k", score * 11 + 27),
        ("score + slope[document[k] * 65536 * 1024 - 1]", score + s[2]),
        ("score + max(document[k], b)", score + max(d[3], 1)),
    ):
        expression = read(text)
        named = {"slope": slope, "table": table, "document": document}
        tables = tuple(named[of.name] for of in expression.tables)
        given = (torch.tensor(score, dtype=torch.float64), *map(torch.tensor, (b, h, q, k)), tables)
        found = function(expression, torch)(*given)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), msg=text)


def test_what_is_of_head_or_row_is_computed_once():
    header = cpp.header(read("score + slope[h] * (k - q) + exp(slope[h] * 2) * slope[q]"))
    head, row, element = header.split("SCORE_FUNCTION")[1:]
    assert "float_at" in head and "score_math::exp" in head
    assert "float_at" in row and "float(q)" in row and "exp" not in row
    assert "float_at" not in element and "float(" not in element.partition("{")[2]


def test_integers_that_need_64_bits_have_them():
    assert "int64_t" not in cpp.header(read("score + slope[h * 65 + k // 4]"))
    assert "int64_t" in cpp.header(read("score + slope[h * 65536 + k]"))
    index = read("score + slope[abs(q - k) * 2 % 7 + max(h, 3)]").root.args[1].args[0]
    ranges = {"b": (0, 0), "h": (0, 11), "q": (0, 99), "k": (0, 99)}
    assert bounds_with(index, ranges) == (3, 17)
    assert bounds_with(index.args[0].args[0], ranges) == (0, 198)


@pytest.mark.parametrize(
    "text, adds",
    (
        ("score", True),
        ("score + slope[h] * (k - q)", True),
        ("slope[h] - (q - k) + score - 3", True),
        ("1 - score", False),
        ("score + score * k", False),
        ("2 * score", False),
        ("where(q > k, score, 0)", False),
    ),
)
def test_whether_it_only_adds(text, adds):
    assert read(text).only_adds == adds


def test_the_tensors_that_a_text_names():
    text = (
        "where(document[q] == document[k], score, -1.0) + t[h, kind[k]] + u[h // 2] * abs(v[k]) + w[x[k] % 3]"
    )
    found = tables_of(text)
    kinds = {name: kind for name, (kind, _) in found.items()}
    assert kinds == {
        "document": "int",
        "t": "float",
        "kind": "int",
        "u": "float",
        "v": "float",
        "w": "float",
        "x": "int",
    }
    assert found["t"] == ("float", 2)
    parse(text, found)
