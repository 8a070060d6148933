"""One user at a time."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchbisect.box import Box, LaunchSpec, Reservations, open_box
from patchbisect.box.agent import lease as book_module
from patchbisect.box.agent.base import Refused
from patchbisect.box.agent.lease import LeaseBook
from patchbisect.box.failures import BoxBusy, LeaseLost
from patchbisect.box.values import LeaseHeld
from patchbisect.errors import BoxError
from tests.box.lab import launch, listen, settings_for, until_log


def take(book: LeaseBook, *, token: str = "t", ttl_s: float = 60.0, gpus: list[int] | None = None, steal: bool = False):
    holder = {"owner": "ada", "host": "here", "reason": "test", "client": "c", "pid": 1}
    return book.acquire(holder=holder, token=token, ttl_s=ttl_s, gpus=gpus or [], steal=steal)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(book_module, "since_boot", lambda: now[0])
    return now


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeaseBook:
    """Its numbers begin with 1."""
    monkeypatch.setattr(book_module, "first_number", lambda: 0)
    return LeaseBook(str(tmp_path))


def test_a_second_client_is_told_who_holds_the_box(book: LeaseBook) -> None:
    assert take(book)["fence"] == 1
    busy = take(book, token="other")["busy"]
    assert (busy["owner"], busy["host"], busy["reason"]) == ("ada", "here", "test")


def test_a_request_repeated_after_its_answer_was_lost_is_not_its_own_rival(book: LeaseBook) -> None:
    take(book)
    assert take(book)["fence"] == 2


def test_an_expired_lease_can_be_taken_and_its_number_is_dead_then(book: LeaseBook, clock: list[float]) -> None:
    take(book, ttl_s=10.0)
    clock[0] += 11.0
    book.check(1)
    assert take(book, token="other")["fence"] == 2
    with pytest.raises(Refused, match="taken away"):
        book.check(1)


def test_an_expired_lease_that_nobody_took_lives_again(book: LeaseBook, clock: list[float]) -> None:
    take(book, ttl_s=10.0)
    clock[0] += 11.0
    assert book.renew(fence=1, ttl_s=10.0)["expires_in_s"] == 10.0
    assert "busy" in take(book, token="other")


def test_numbers_only_grow_also_after_release(book: LeaseBook) -> None:
    take(book)
    assert book.release(fence=1) == {"released": True}
    assert book.release(fence=1) == {"released": False}
    assert take(book)["fence"] == 2


@pytest.mark.parametrize("written", ["", '{"le', "[]", "7", "{}", '{"fence": 9}', '{"fence": "9", "leases": []}'])
def test_a_book_that_is_damaged_is_begun_anew(book: LeaseBook, tmp_path: Path, written: str) -> None:
    take(book)
    (tmp_path / "lease.json").write_text(written)
    assert book.status()["leases"] == []
    assert take(book, token="other")["fence"] == 1
    assert "busy" in take(book, token="third")


def test_a_number_of_a_book_that_was_deleted_is_never_given_again(tmp_path: Path) -> None:
    place = tmp_path / "lease"
    old = LeaseBook(str(place))
    numbers = [take(old, token=str(count), steal=True)["fence"] for count in range(5)]
    shutil.rmtree(place)
    new = LeaseBook(str(place))
    assert take(new, token="new")["fence"] > max(numbers)
    with pytest.raises(Refused, match="taken away"):
        new.check(numbers[-1])


def test_whoever_lost_a_lease_hears_of_it_although_the_new_one_has_a_smaller_number(book: LeaseBook) -> None:
    take(book)
    assert book.taken_over(7) == "ada on here"


def test_stealing_says_whom_it_replaced(book: LeaseBook) -> None:
    take(book)
    stolen = take(book, token="other", steal=True)
    assert [one["fence"] for one in stolen["replaced"]] == [1]
    assert book.taken_over(1) == "ada on here"


def test_leases_of_different_gpus_live_side_by_side(book: LeaseBook) -> None:
    assert take(book, token="a", gpus=[0, 1])["fence"] == 1
    assert take(book, token="b", gpus=[2, 3])["fence"] == 2
    assert "busy" in take(book, token="c", gpus=[1, 2])
    assert "busy" in take(book, token="d")
    book.check(1)
    assert book.taken_over(1) == ""


def test_who_comes_back_with_a_new_lease_has_not_taken_over_from_itself(book: LeaseBook) -> None:
    take(book, token="killed", gpus=[0, 1])
    take(book, token="colleague", gpus=[2, 3])
    take(book, token="back", gpus=[0, 1], steal=True)
    assert book.taken_over(1, own=3, gpus=[0, 1]) == ""
    assert book.taken_over(1, own=2, gpus=[2, 3]) == "", "those are other GPUs"
    assert book.taken_over(1, own=2, gpus=[0, 1]) == "ada on here"


def test_a_reboot_ends_every_lease_and_who_held_it_may_have_it_back(
    book: LeaseBook, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    take(book, ttl_s=1e6)
    monkeypatch.setattr(book_module, "boot_id", lambda: "another boot")
    clock[0] = 5.0
    assert [held["expires_in_s"] for held in book.status()["leases"]] == [0.0]
    book.check(1)
    assert book.renew(fence=1, ttl_s=10.0)["expires_in_s"] == 10.0
    assert "busy" in take(book, token="other")


def test_after_a_reboot_the_first_has_the_box(book: LeaseBook, monkeypatch: pytest.MonkeyPatch) -> None:
    take(book, ttl_s=1e6)
    monkeypatch.setattr(book_module, "boot_id", lambda: "another boot")
    assert take(book, token="other")["fence"] == 2
    with pytest.raises(Refused, match="taken away"):
        book.renew(fence=1, ttl_s=10.0)


@pytest.mark.parametrize("name", ["lease.json.spare", "lease.json.{pid}.tmp", "lease.json"])
def test_a_link_that_somebody_laid_beside_the_book_is_not_written_through(
    book: LeaseBook, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    (tmp_path / name.format(pid=os.getpid())).symlink_to(victim)
    with contextlib.suppress(Refused):
        take(book)
    assert victim.read_text() == "precious"
    assert victim.stat().st_mode & 0o777 == 0o600


def test_every_user_may_write_the_book(book: LeaseBook, tmp_path: Path) -> None:
    take(book)
    take(book, token="again", steal=True)
    assert all((tmp_path / name).stat().st_mode & 0o777 == 0o666 for name in ("lease.json", "lease.json.spare", "lock"))


def test_the_wall_clock_does_not_matter(book: LeaseBook, monkeypatch: pytest.MonkeyPatch) -> None:
    take(book, ttl_s=60.0)
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert "busy" in take(book, token="other")


def test_commands_that_change_the_box_need_the_lease(tmp_path: Path) -> None:
    with open_box("local", settings_for(tmp_path), state=tmp_path) as box:
        with pytest.raises(LeaseLost):
            box.prove_clean()
        with pytest.raises(LeaseLost):
            box.start(LaunchSpec("x", ("true",)))


@pytest.mark.ci
def test_two_clients_take_turns(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with open_box("local", settings, state=tmp_path) as one, open_box("local", settings, state=tmp_path) as other:
        with one.lease("first"):
            with pytest.raises(BoxBusy, match=f"{getpass.getuser()} on .* \\(first\\)") as busy, other.lease("second"):
                pass
            assert "--wait-for-box 600" in busy.value.remedy
            waiting = threading.Event()

            def second() -> None:
                waiting.set()
                with other.lease("second", wait_s=30.0):
                    pass

            thread = threading.Thread(target=second)
            thread.start()
            waiting.wait()
        thread.join(timeout=30)
        assert not thread.is_alive()
        assert one.leases() == ()


def test_the_lease_of_a_client_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom patchbisect.box import open_box\n"
        "from tests.box.lab import settings_for\nfolder = Path(sys.argv[1])\n"
        "with open_box('local', settings_for(folder), state=folder) as box, box.lease('soon dead'):\n"
        "    print('held', flush=True)\n    time.sleep(60)\n"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    client = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"held\n"
    with open_box("local", settings_for(tmp_path), state=tmp_path) as box:
        with pytest.raises(BoxBusy, match="soon dead"), box.lease("too early"):
            pass
        client.kill()
        client.wait()
        with box.lease("resumed"):
            assert [held.reason for held in box.leases()] == ["resumed"]
    client.stdout.close()


def test_a_stolen_lease_ends_the_trial_of_its_old_holder(box: Box, tmp_path: Path) -> None:
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    with open_box("local", settings_for(tmp_path), state=tmp_path) as thief, thief.lease("mine now", steal=True):
        with pytest.raises(LeaseLost, match="mine now"):
            box.prove_clean()
        with pytest.raises(LeaseLost):
            box.start(LaunchSpec("another", ("true",)))
        report = run.stop(0.0)
        assert report.ended, "our own launch may always be ended"
        assert any("lease" in said for said in report.box_changed)
        assert thief.prove_clean().clean
    box._fence = box.acquire("again")


@pytest.mark.ci
def test_a_launch_that_its_client_joins_again_under_a_new_lease_is_still_its_own(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with open_box("local", settings, state=tmp_path) as box:
        with box.lease("before it was killed"):
            run = launch(box, "--line", "up", "--end", "hang")
            listen(run, until=until_log(b"up"))
        with box.lease("resumed"):
            report = box.attach(run.launch_id).stop(0.0)
    assert report.killed
    assert report.box_changed == ()


# .. a reservation


@pytest.fixture
def reserved(tmp_path: Path) -> Iterator[tuple[Box, Reservations]]:
    """A box that this project has reserved, reached by one command."""
    kept = Reservations(tmp_path)
    with open_box("local", settings_for(tmp_path), state=tmp_path) as box:
        kept.keep(box.name, box.acquire("reserved", lease_s=600.0))
        yield box, kept
        with kept.used(box, reason="tidying"):
            box.prove_clean()


@pytest.mark.ci
@pytest.mark.parametrize("written", ["", '{"fe', "[]", "{}", '{"fence": null}'])
def test_a_reservation_whose_file_is_damaged_is_none(tmp_path: Path, written: str) -> None:
    kept = Reservations(tmp_path)
    with open_box("local", settings_for(tmp_path), state=tmp_path) as box:
        kept.keep(box.name, box.acquire("reserved", lease_s=600.0))
        assert kept.fence(box)
        (file,) = (tmp_path / "reservations").glob("*.json")
        file.write_text(written)
        assert kept.fence(box) == 0
        with pytest.raises(BoxBusy, match="reserved"):
            box.acquire("launch")


@pytest.mark.ci
def test_two_commands_under_one_reservation_take_turns(reserved: tuple[Box, Reservations], tmp_path: Path) -> None:
    box, kept = reserved
    with open_box("local", settings_for(tmp_path), state=tmp_path) as other:
        with kept.used(box, reason="bisect"):
            box.prove_clean()
            busy = pytest.raises(BoxBusy, match=rf"another command of this project: bisect, pid {os.getpid()} on ")
            with busy, kept.used(other, reason="launch"):
                pass
            waiting, done = threading.Event(), threading.Event()

            def second() -> None:
                waiting.set()
                with kept.used(other, reason="launch", wait_s=30.0):
                    assert other.prove_clean().clean
                done.set()

            thread = threading.Thread(target=second)
            thread.start()
            waiting.wait()
            assert not done.is_set()
        thread.join(timeout=30)
        assert done.is_set()


def test_a_reservation_that_is_over_when_the_turn_comes_is_told(reserved: tuple[Box, Reservations]) -> None:
    box, kept = reserved
    fence = kept.fence(box)
    box.release(fence)
    with pytest.raises(LeaseLost, match="reservation of box local is over"), kept.used(box, reason="launch"):
        pass
    kept.keep(box.name, box.acquire("reserved", lease_s=600.0))


@pytest.mark.ci
def test_a_launch_that_another_command_swept_says_nothing_of_the_code(box: Box, tmp_path: Path) -> None:
    run = launch(box, "--line", "up", "--end", "hang")
    listen(run, until=until_log(b"up"))
    with open_box("local", box.settings, state=tmp_path) as other, other.reserved(box.leases()[0].fence):
        assert other.prove_clean().swept
    story = listen(run)
    assert story.exited is not None
    assert story.exited.exit_code == -9
    (said,) = run.stop(0.0).box_changed
    assert said.startswith(f"the launch was ended as a leftover by another command of {getpass.getuser()} on ")


@pytest.mark.ci
def test_a_lease_is_renewed_while_it_is_used(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, lease_s=1.5)
    with open_box("local", settings, state=tmp_path) as box, box.lease("long"):
        run = launch(box, "--line", "up", "--end", "hang")
        listen(run, until=lambda s: s.signals is not None and (s.signals.silent_for_s or 0) > 3.0)
        (held,) = box.leases()
        assert held.held_s > 3.0
        assert held.expires_in_s > 0
        run.stop(0.0)


def test_a_reason_gives_no_orders_to_the_terminal_of_others(tmp_path: Path) -> None:
    orders = "mine\n\x1b]0;owned\x07"
    with open_box("local", settings_for(tmp_path), state=tmp_path) as ours, ours.lease(orders):
        (held,) = ours.leases()
        assert held.reason == "mine··]0;owned·"
        assert "mine··]0;owned·" in next(check.detail for check in ours.doctor() if check.check == "lease")


@pytest.mark.ci
def test_a_book_that_cannot_be_kept_is_told_with_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = settings_for(tmp_path, lease_directory=str(tmp_path / "file" / "lease"))
    with open_box("local", settings, state=tmp_path) as box:
        with pytest.raises(BoxError) as caught, box.lease("x"):
            pass
        found = {check.check: check for check in box.doctor()}["lease"]
    where = f"the lease of the box cannot be kept in {tmp_path / 'file' / 'lease'}: Not a directory"
    assert caught.value.message == f"box local: {where}"
    assert "`lease-dir` of the box" in caught.value.remedy
    assert (found.ok, found.detail, found.remedy) == (False, where, caught.value.remedy)


def test_a_book_that_may_not_be_read_is_not_an_empty_one(book: LeaseBook, monkeypatch: pytest.MonkeyPatch) -> None:
    take(book)

    def refuse(path: str, *words: object, **more: object) -> object:
        if str(path).endswith("lease.json"):
            raise PermissionError(13, "Permission denied", path)
        return open(path, *words, **more)  # noqa: PTH123

    monkeypatch.setattr(book_module, "open", refuse, raising=False)
    with pytest.raises(Refused, match="cannot be kept .* Permission denied"):
        take(book, token="another")


def test_a_book_without_room_is_no_fault_of_the_setting(book: LeaseBook, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(book_module, "write_reserved", refuse)
    with pytest.raises(OSError, match="No space"):
        take(book)


@pytest.mark.parametrize(
    ("pid", "expires_in_s", "says"),
    [
        (7, 110.0, "for 1 h 20 min, expires in 2 min unless renewed"),
        (0, 2700.0, "for 1 h 20 min, expires in 45 min"),
        (0, -3.0, "for 1 h 20 min, expired"),
    ],
)
def test_a_lease_says_who_has_it_for_how_long(pid, expires_in_s, says):
    held = LeaseHeld(
        fence=1,
        owner="ada",
        host="h",
        reason="bisect",
        gpus=(),
        held_s=4800.0,
        expires_in_s=expires_in_s,
        client="",
        pid=pid,
    )
    assert str(held) == f"ada on h (bisect), {says}"
