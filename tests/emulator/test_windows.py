"""Mistakes in packed attention's windows are seen by the emulated kernels' cases; a kernel that takes no
window is refused."""

import shutil

import pytest

from fusescope.core import paths
from fusescope.core.sources import families
from tests import emulator

pytestmark = pytest.mark.slow

WRONG = {
    "a tile at the far edge is not masked": (
        "v4_persistent",
        "window_mask.cuh",
        "key >= see - width + 63",
        "key >= see - width",
    ),
    "tiles of the other query tile are not skipped": (
        "v4_persistent",
        "v4_persistent.cu",
        "if (kWindowed && mine > 0)",
        "if (false)",
    ),
    "the next sequence's values are not cleared": (
        "v4_persistent",
        "v4_persistent.cu",
        "if constexpr (kWindowed) clear_beyond(begin);",
        "",
    ),
    "steps are counted from the first key": (
        "v3_hopper",
        "v3_hopper.cu",
        "context.start(v, step > begin);",
        "context.start(v, step > 0);",
    ),
    "a row computed again sees keys before its window": (
        "v3_hopper",
        "sequence_again.cuh",
        "const int begin = first_of_row(a, w, row), end",
        "const int begin = 0, end",
    ),
}
"""Kernel, file, what stands there, what stands there instead."""


def changed(name: str, right: str, wrong: str, tmp_path, monkeypatch) -> None:
    shutil.copytree(paths.cuda_sources(), tmp_path / "cuda")
    file = tmp_path / "cuda" / "attention_varlen" / name
    assert file.read_text().count(right) == 1
    file.write_text(file.read_text().replace(right, wrong))
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path / "cuda"))


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_shows(server, mistake, tmp_path, monkeypatch):
    impl, name, right, wrong = WRONG[mistake]
    changed(name, right, wrong, tmp_path, monkeypatch)
    library = emulator.build("attention_varlen", [families()["attention_varlen"].variant(impl)])
    found = [
        r
        for check in ("", "packed_window", "packed")
        for r in server.run(library, "attention_varlen", impl, check)
        if r["wrong"]
    ]
    assert found and all("window" in r["case"] for r in found), found


def test_a_kernel_that_takes_no_window_is_refused(server, tmp_path, monkeypatch):
    right = "if (!call.taken) return launch(args);"
    changed("sequences.cuh", right, "return launch(args);", tmp_path, monkeypatch)
    library = emulator.build("attention_varlen", [families()["attention_varlen"].variant("v1_rowwise")])
    results = server.run(library, "attention_varlen", "v1_rowwise")
    refused = [r for r in results if r["refused"]]
    assert refused and all(r["refused"] == "a window (this kernel takes none)" for r in refused)
    assert all("window" in r["case"] for r in refused) and not any(r["wrong"] for r in results)
