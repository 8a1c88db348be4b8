"""core.whole_files: a file is the old or the new one, whatever happens; what is no object is empty."""

from pathlib import Path

import pytest

from fusescope.core import whole_files


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "new" / "a.json"
    whole_files.replace(file, '{"a": 1}')
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        whole_files.replace(file, '{"a": 2}')
    assert whole_files.read_object(file) == {"a": 1} and list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("text", ['{"a"', "[1]", ""])
def test_what_is_no_object_is_empty(tmp_path, text):
    file = tmp_path / "a.json"
    assert whole_files.read_object(file) == {}
    file.write_text(text)
    assert whole_files.read_object(file) == {}
