"""What the system refuses is told in one line; a defect keeps its traceback."""

from __future__ import annotations

import errno
import os

import pytest

from trimaran import cli


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EACCES, 4), (errno.EROFS, 4), (errno.ENOSPC, 4), (errno.ENAMETOOLONG, 2)],
)
def test_a_refused_file_is_named_without_a_traceback(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise OSError(number, os.strerror(number), "/srv/evidence.json")

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert f"/srv/evidence.json: {os.strerror(number)}" in capsys.readouterr().err


def test_another_system_error_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(OSError, match="Bad file descriptor"):
        cli.main()
