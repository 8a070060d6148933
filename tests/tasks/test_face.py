"""What every task does with faults that are not its own."""

from __future__ import annotations

import errno
import os

import invoke
import pytest

from patchbisect.tasks.face import task


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_without_room_is_one_clear_line(number: int) -> None:
    @task()
    def writes(ctx: invoke.Context) -> None:
        raise OSError(number, os.strerror(number), "/state/mirror.git/config")

    with pytest.raises(invoke.Exit) as ended:
        writes(invoke.Context())
    assert ended.value.code == 2
    assert ended.value.message.startswith(f"error: /state/mirror.git/config: {os.strerror(number)}\n  make room there")


def test_what_nobody_foresaw_keeps_its_traceback() -> None:
    @task()
    def writes(ctx: invoke.Context) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        writes(invoke.Context())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_one_clear_line(number: int) -> None:
    @task()
    def reads(ctx: invoke.Context) -> None:
        raise OSError(number, os.strerror(number), "/state/journal")

    with pytest.raises(invoke.Exit) as ended:
        reads(invoke.Context())
    assert ended.value.code == 2
    assert ended.value.message.startswith(f"error: this machine: {os.strerror(number)}\n  allow more with ulimit -n")
