import os
import shutil
import socket
import zipfile

import pytest

from patchbisect.errors import BoxError, UsageError
from patchbisect.model import Base
from patchbisect.upstream import Mirror, sources
from tests.tiny_upstream import ENGINE, FILES, LOADER, commit, git, package_files, replaced, repository, wheel


@pytest.fixture
def index(tmp_path):
    """A folder that pip finds 0.1.0 and 0.2.0 in, as arguments; and the checksum of 0.1.0."""
    folder = tmp_path / "index"
    _, sha256 = wheel(folder, "0.1.0", package_files())
    wheel(folder, "0.2.0", package_files({**FILES, ENGINE: "import os\n" + FILES[ENGINE]}))
    return ("--no-index", "--find-links", str(folder)), sha256


@pytest.fixture
def release(tmp_path, index):
    """The checksum of 0.1.0; both releases are kept in the state already, so that pip is not needed."""
    for path in (tmp_path / "index").glob("*.whl"):
        place = tmp_path / "state" / "wheels" / path.name.split("-")[1]
        place.mkdir(parents=True)
        shutil.copy(path, place)
    return index[1]


@pytest.fixture
def offline(tmp_path):
    """The URL of an upstream that does not answer."""
    return f"file://{tmp_path}/nowhere.git"


def mirror_of(tmp_path, **settings):
    return Mirror(tmp_path / "state", **settings)


def test_a_release_is_laid_out_as_in_git(tmp_path, upstream, release):
    pin = upstream.pin(release="0.1.0", wheel_sha256=release)
    from_git = mirror_of(tmp_path, source="git").materialize(Base(pin), [])
    from_release = mirror_of(tmp_path, source="release").materialize(Base(pin), [])
    assert from_release.source == "release 0.1.0"
    assert from_release.tree == from_git.tree


def test_the_same_release_is_the_same_commit_anywhere(tmp_path, upstream, release, monkeypatch):
    base = Base(upstream.pin(release="0.1.0", wheel_sha256=release))
    first = mirror_of(tmp_path, source="release").base(base)
    shutil.rmtree(tmp_path / "state" / "mirror.git")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Eve")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert mirror_of(tmp_path, source="release").base(base) == first


def test_auto_takes_git_where_it_answers(tmp_path, upstream, release):
    pin = upstream.pin(release="0.1.0", wheel_sha256=release)
    assert mirror_of(tmp_path).base(Base(pin)).source == f"git ({upstream.path})"


def test_auto_takes_the_release_where_git_does_not_answer(tmp_path, upstream, release, offline):
    pin = upstream.pin(upstream=offline, release="0.1.0", wheel_sha256=release)
    assert mirror_of(tmp_path).base(Base(pin)).source == "release 0.1.0"


def test_a_release_asked_for_by_that_name_is_one_even_where_git_answers(tmp_path, upstream, release):
    base = Base(upstream.pin(release="0.1.0", wheel_sha256=release), rev="release:0.2.0")
    mirror = mirror_of(tmp_path)
    assert mirror.freeze(base) == base
    assert mirror.base(base).source == "release 0.2.0"
    with pytest.raises(BoxError, match="is a release"):
        mirror_of(tmp_path, source="git").base(base)


def test_auto_stays_with_what_the_mirror_has(tmp_path, upstream, release, offline):
    changes = {"release": "0.1.0", "wheel_sha256": release}
    first = mirror_of(tmp_path).base(Base(upstream.pin(upstream=offline, **changes)))
    said = []
    later = mirror_of(tmp_path, say=said.append).base(Base(upstream.pin(**changes)))
    assert later == first
    assert said == []


@pytest.mark.ci
def test_a_wheel_is_downloaded_once_and_kept(tmp_path, upstream, index):
    pip_args, sha256 = index
    base = Base(upstream.pin(release="0.1.0", wheel_sha256=sha256))
    abandoned = tmp_path / "state" / "wheels" / ".download-killed"
    abandoned.mkdir(parents=True)
    mirror_of(tmp_path, source="release", pip_args=pip_args).base(base)
    assert not abandoned.exists()
    kept = list((tmp_path / "state" / "wheels").rglob("*.whl"))
    assert [path.parent.name for path in kept] == ["0.1.0"]
    said = []
    shutil.rmtree(tmp_path / "state" / "mirror.git")
    again = mirror_of(tmp_path, source="release", pip_args=("--no-index",), say=said.append)
    assert again.base(base).source == "release 0.1.0"
    assert said == []


@pytest.mark.ci
def test_a_checksum_that_differs(tmp_path, upstream, index):
    pip_args, sha256 = index
    wrong = "0" * 64
    mirror = mirror_of(tmp_path, source="release", pip_args=pip_args)
    with pytest.raises(UsageError) as caught:
        mirror.base(Base(upstream.pin(release="0.1.0", wheel_sha256=wrong)))
    assert sha256 in caught.value.message
    assert wrong in caught.value.message
    assert not list((tmp_path / "state" / "wheels").rglob("*.whl"))
    assert mirror.base(Base(upstream.pin(release="0.1.0", wheel_sha256=sha256)))


def test_a_kept_wheel_that_was_changed_is_noticed(tmp_path, upstream, release):
    place = tmp_path / "state" / "wheels" / "0.1.0"
    path, _ = wheel(place, "0.1.0", {"__init__.py": "evil = 1\n"})
    with pytest.raises(UsageError, match="checksum") as caught:
        mirror_of(tmp_path, source="release").base(Base(upstream.pin(release="0.1.0", wheel_sha256=release)))
    assert str(path) in caught.value.remedy


@pytest.mark.parametrize("name", ["../evil.py", "sglang/../../evil.py", "sglang/.git/hooks/post-checkout"])
def test_a_wheel_that_leaves_the_tree(tmp_path, upstream, name):
    place = tmp_path / "state" / "wheels" / "0.1.0"
    path, _ = wheel(place, "0.1.0", package_files())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, "x")
    mirror = mirror_of(tmp_path, source="release")
    base = Base(upstream.pin(), rev="release:0.1.0")
    if name.startswith("sglang/"):
        with pytest.raises(UsageError, match="leaves the tree|inside .git"):
            mirror.base(base)
    else:
        listing = git(mirror.path.parent / "mirror.git", "ls-tree", "-r", "--name-only", mirror.base(base).commit)
        assert "evil" not in listing


def test_a_file_that_is_no_wheel(tmp_path, upstream):
    place = tmp_path / "state" / "wheels" / "0.1.0"
    place.mkdir(parents=True)
    (place / "sglang-0.1.0-py3-none-any.whl").write_bytes(b"<html>")
    with pytest.raises(UsageError, match="is not a wheel"):
        mirror_of(tmp_path, source="release").base(Base(upstream.pin(), rev="release:0.1.0"))


@pytest.mark.ci
def test_a_release_that_does_not_exist(tmp_path, upstream, index):
    mirror = mirror_of(tmp_path, source="release", pip_args=index[0])
    with pytest.raises(UsageError, match=r"no wheel of sglang 9\.9\.9 .*") as caught:
        mirror.base(Base(upstream.pin(), rev="v9.9.9"))
    assert "0.2.0" in caught.value.remedy


@pytest.mark.parametrize("rev", ["v0.2.0", "0.2.0", "release:0.2.0"])
def test_names_of_releases(tmp_path, upstream, release, rev):
    mirror = mirror_of(tmp_path, source="release")
    base = mirror.freeze(Base(upstream.pin(), rev=rev))
    assert base.rev == "release:0.2.0"
    assert mirror.read(mirror.base(base).commit, ENGINE).startswith(b"import os\n")


def test_a_release_does_not_have_every_revision(tmp_path, upstream, release):
    mirror = mirror_of(tmp_path, source="release")
    with pytest.raises(BoxError, match="'main' is not a release") as caught:
        mirror.freeze(Base(upstream.pin(), rev="main"))
    assert caught.value.exit_code == 3
    with pytest.raises(BoxError, match="names no release"):
        mirror.base(Base(upstream.pin()))


def test_nothing_answers(tmp_path, upstream, offline):
    mirror = mirror_of(tmp_path)
    with pytest.raises(BoxError) as caught:
        mirror.base(Base(upstream.pin(upstream=offline)))
    assert offline in caught.value.message
    assert "names no release" in caught.value.message
    assert "upstream.clone" in caught.value.remedy


@pytest.mark.ci
def test_pip_without_a_network_is_said_in_one_line(tmp_path, upstream, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    closed = ("--isolated", "--retries", "0", "--index-url", "http://127.0.0.1:9/simple")
    mirror = mirror_of(tmp_path, source="release", pip_args=closed)
    with pytest.raises(BoxError, match=r"cannot download sglang 9\.9\.9: pip reaches no index") as caught:
        mirror.base(Base(upstream.pin(), rev="release:9.9.9"))
    assert caught.value.exit_code == 3


def test_a_pin_that_upstream_does_not_have(tmp_path, upstream):
    pin = upstream.pin(commit="1" * 40)
    with pytest.raises(UsageError, match="the pin 111111111111 is not in") as caught:
        mirror_of(tmp_path).base(Base(pin))
    assert "pin.toml" in caught.value.remedy


def test_a_local_clone(tmp_path, upstream, offline):
    pin = upstream.pin(upstream=offline)
    mirror = mirror_of(tmp_path, source="git", clone=str(upstream.path))
    assert mirror.base(Base(pin)).source == f"git ({upstream.path})"
    assert git(mirror.path, "rev-list", "--count", mirror.base(Base(pin)).commit) == "1"
    for rev in ("v0.2.0", "main", upstream.second[:10], "v0.2.0~0", upstream.second):
        assert mirror.freeze(Base(pin, rev=rev)).rev == upstream.second
    assert mirror.freeze(Base(pin, rev="v0.1.0")).rev == ""
    assert mirror.base(Base(pin, rev=upstream.second)).commit == upstream.second


def test_a_local_clone_that_lacks_it_or_is_not_there(tmp_path, upstream):
    older = repository(tmp_path / "older", {"python/sglang/__init__.py": ""})
    with pytest.raises(UsageError, match="the pin .* is not in") as caught:
        mirror_of(tmp_path, clone=str(older)).base(Base(upstream.pin()))
    assert f"git -C {older} fetch" in caught.value.remedy
    with pytest.raises(UsageError, match="revision 'v0.9' is not in"):
        mirror_of(tmp_path, clone=str(older)).freeze(Base(upstream.pin(), rev="v0.9"))
    with pytest.raises(UsageError, match="there is no folder"):
        mirror_of(tmp_path, clone=str(tmp_path / "nope")).base(Base(upstream.pin()))


def test_revisions_of_a_url(tmp_path, upstream):
    mirror = mirror_of(tmp_path, source="git")
    upstream.own()
    git(upstream.path, "tag", "-a", "annotated", "-m", "x", "v0.2.0")
    for rev in ("v0.2.0", "main", "annotated"):
        assert mirror.freeze(Base(upstream.pin(), rev=rev)).rev == upstream.second
    with pytest.raises(UsageError, match="has no branch or tag 'mian'"):
        mirror.freeze(Base(upstream.pin(), rev="mian"))


def test_a_repository_that_is_not_sglang(tmp_path, upstream):
    other = repository(tmp_path / "other", {"README": "x"})
    pin = upstream.pin(upstream=str(other), commit=git(other, "rev-parse", "HEAD"))
    with pytest.raises(UsageError, match="has no python/sglang"):
        mirror_of(tmp_path).base(Base(pin))


def test_a_patch_for_files_outside_the_release(tmp_path, upstream, release):
    commit(upstream.bench, {"python/pyproject.toml": "x = 1\n"})
    patch = upstream.patch_of(1, "outside", {"python/pyproject.toml": "x = 2\n"})
    inside = upstream.patch(2, "inside", {LOADER: [replaced("loader_5 = 5")]})
    base = Base(upstream.pin(release="0.1.0", wheel_sha256=release))
    mirror = mirror_of(tmp_path, source="release")
    assert mirror.applies(base, [inside])
    with pytest.raises(Exception, match="there is no python/pyproject.toml") as caught:
        mirror.materialize(base, [patch])
    assert "upstream.clone" in caught.value.remedy


@pytest.mark.ci
def test_a_server_that_never_answers_is_given_up(tmp_path, upstream, release, monkeypatch):
    monkeypatch.setattr(sources, "_PROBE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        pin = upstream.pin(upstream=f"http://127.0.0.1:{port}/sglang.git", release="0.1.0", wheel_sha256=release)
        assert mirror_of(tmp_path).base(Base(pin)).source == "release 0.1.0"
        with pytest.raises(BoxError, match="did not answer within"):
            Mirror(tmp_path / "other", source="git").base(Base(pin))
