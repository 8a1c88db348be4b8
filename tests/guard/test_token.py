"""The token's file: made once, read by its user alone, never taken from anybody else."""

import os
import threading

import pytest

from pages._ui.guard import token


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("FUSESCOPE_TOKEN", raising=False)
    monkeypatch.delenv("FUSESCOPE_NO_TOKEN", raising=False)
    monkeypatch.setenv("FUSESCOPE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_restart_finds_the_same_token_in_a_file_of_mode_0600(home):
    os.umask(os.umask(0))
    first = token.load()
    assert first == token.load() and len(first.token) == 48 and not first.warning
    assert (home / "token").stat().st_mode & 0o777 == 0o600 and home.stat().st_mode & 0o777 == 0o700
    assert [f.name for f in home.iterdir()] == ["token"] and first.where == str(home / "token")
    assert first.token not in repr(first)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o622])
def test_a_token_that_others_could_read_is_replaced(home, mode):
    first = token.load()
    (home / "token").chmod(mode)
    second = token.load()
    assert second.token != first.token and (home / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "short", "a" * 500, "0123456789abcdef\nx", "ä" * 20])
def test_a_file_that_holds_no_token_is_replaced(home, text):
    token.load()
    (home / "token").write_text(text)
    (home / "token").chmod(0o600)
    assert len(token.load().token) == 48 and token.load() == token.load()


def test_a_link_or_a_pipe_is_neither_read_nor_written(home, tmp_path):
    other = tmp_path / "other"
    other.write_text("a" * 20)
    other.chmod(0o600)
    home.mkdir(mode=0o700)
    for plant in (lambda f: f.symlink_to(other), os.mkfifo, lambda f: f.mkdir()):
        plant(home / "token")
        found = token.load()
        assert found.warning and found.token != "a" * 20 and other.read_text() == "a" * 20
        (home / "token").rmdir() if (home / "token").is_dir() else (home / "token").unlink()
    os.link(other, home / "token")  # one file under two names may be somebody else's to write
    assert token.load().token != "a" * 20


def test_a_folder_that_others_write_or_that_cannot_be_made_keeps_no_token(home):
    home.mkdir()
    home.chmod(0o777)
    found = token.load()
    assert found.warning and not (home / "token").exists() and found != token.load()
    home.rmdir()
    home.write_text("")
    assert "cannot be kept" in token.load().warning


def test_servers_that_start_together_agree(home):
    found = []
    threads = [threading.Thread(target=lambda: found.append(token.load().token)) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 1 and [f.name for f in home.iterdir()] == ["token"]


def test_the_variable_is_taken_or_refused_in_one_sentence(home, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_TOKEN", "my-own-token-of-16")
    assert token.load().token == "my-own-token-of-16" and not home.exists()
    for wrong in ("", "short", "with a space in it", "ü" * 20, "a" * 200):
        monkeypatch.setenv("FUSESCOPE_TOKEN", wrong)
        with pytest.raises(ValueError, match="16 to 128 characters"):
            token.load()
    monkeypatch.setenv("FUSESCOPE_NO_TOKEN", "1")
    assert token.load().token is None


def test_what_somebody_pastes_is_understood_and_nothing_else():
    secret = token.Secret("0123456789abcdef")
    for good in ("0123456789abcdef", " 0123456789abcdef\n", "http://127.0.0.1:8501/?token=0123456789abcdef"):
        assert secret.is_token(good)
    for bad in ("", "0123456789abcde", "0123456789abcdefg", "\ud800", secret.cookie):
        assert not secret.is_token(bad) and not token.Secret(None).is_token(bad)
    assert secret.is_cookie(secret.cookie) and not secret.is_cookie("0123456789abcdef")
    assert not token.Secret(None).is_cookie(token.Secret(None).cookie)
