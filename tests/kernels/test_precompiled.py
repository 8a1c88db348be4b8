"""Torch's headers are parsed once for many bindings, by a stand-in for torch that says when it is parsed."""

from __future__ import annotations

import pytest

from fusescope.core.machine import toolchain
from fusescope.kernels import ninja, precompiled
from fusescope.kernels.plan import Object


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """compiled(count, header of torch) -> {object: whether it is there}, and what compilers said."""
    monkeypatch.setenv("FUSESCOPE_JOBS", "1")

    def run(count: int, header: str):
        files = {
            "include/torch/some.h": f"#pragma once\n{header}\n",
            "cuda/common/binding.h": "#pragma once\n#include <torch/some.h>\n",
            **{
                f"cuda/f{n}/binding.cpp": '#include "../common/binding.h"\nint f = some;\n'
                for n in range(count)
            },
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        flags, folder = ("-isystem", str(tmp_path / "include")), tmp_path / "built"
        folder.mkdir()
        items = [
            Object(
                "cpu", f"f{n}", None, None, tmp_path / f"cuda/f{n}/binding.cpp", "g++", flags, "f", f"key{n}"
            )
            for n in range(count)
        ]
        nothing = lambda *_: None  # noqa: E731
        ninja.compile_missing(toolchain.detect(), folder, items, nothing, lambda: False, nothing)
        said = "".join(f.read_text() for f in [*folder.glob("*.log"), *folder.glob("*.failed")])
        assert not list((folder / "ninja").glob("torch*")), "of use only while bindings compile"
        return [(folder / i.file).is_file() for i in items], said

    return run


@pytest.mark.parametrize("count, parsed", [(3, 3), (4, 0)], ids=["few", "many"])
def test_many_bindings_parse_torch_once(compiled, count, parsed):
    there, said = compiled(count, '#pragma message("torch was parsed")\nstatic int some = 1;')
    assert all(there) and said.count("note: '#pragma message: torch was parsed'") == parsed


def test_an_error_in_torch_is_each_bindings_own(compiled):
    there, said = compiled(4, "#error no torch")
    assert not any(there) and said.count("error: #error no torch") == 4


def test_without_the_common_header_nothing_is_precompiled(tmp_path):
    items = [
        Object("cpu", f"f{n}", None, None, tmp_path / f"f{n}/binding.cpp", "g++", (), None, "")
        for n in range(999)
    ]
    assert precompiled.headers(tmp_path, items) == {}
