import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchbisect.config import Profile, Settings, load_project
from patchbisect.errors import PointUnbuildable, UsageError
from patchbisect.model import Base, Pin, Point
from patchbisect.patchqueue import format_patch, format_pin, parse_patch
from patchbisect.points import PointResolver, recorded_point, with_settings
from patchbisect.records import Attachments, PatchEntry, PointEntry, Record, Store
from patchbisect.upstream import Mirror
from tests.tiny_upstream import ENGINE, LOADER, Upstream, commit, git, replaced, repository, write

SETTINGS = Settings(
    profile="tiny",
    profiles={
        "tiny": Profile(flags={"tp-size": 1, "load-format": "dummy"}, env={"A": "1"}),
        "custom-ar": Profile(flags={"tp-size": 8}),
        "gpt-4": Profile(flags={"api-key": "sk-today"}),
    },
)


def no_runs(identifier):
    raise UsageError(f"no run {identifier!r}")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """An upstream, three patches (``a`` and ``b`` in one file, ``c`` in another), and a state that tests share."""
    folder = tmp_path_factory.mktemp("world")
    upstream = Upstream(folder)
    patches = [
        upstream.patch(1, "a", {ENGINE: [replaced("engine_10 = 10")]}),
        upstream.patch(2, "b", {ENGINE: [replaced("engine_40 = 40")]}),
        upstream.patch(3, "c", {LOADER: [replaced("loader_5 = 5")]}),
    ]
    return upstream, patches, folder / "state"


class Project:
    """A queue repository in a folder."""

    def __init__(self, folder, world):
        self.upstream, self.patches, self.state = world
        self.pin = self.upstream.pin()
        self.root = folder / "queue"
        self.runs = no_runs

    def on_disk(self, *patches):
        """These patches and the pin are what ``patches/`` holds."""
        for path in (self.root / "patches").glob("*.patch"):
            path.unlink()
        files = {f"patches/{patch.name}.patch": format_patch(patch).decode() for patch in patches}
        write(self.root, {**files, "patches/pin.toml": format_pin(self.pin).decode()})

    def commit(self, *patches):
        self.on_disk(*patches)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", "queue")

    def resolver(self):
        mirror = Mirror(self.state, source="git", clone=str(self.upstream.path))
        return PointResolver(root=self.root, settings=SETTINGS, mirror=mirror, runs=lambda name: self.runs(name))

    def resolve(self, name, **options):
        return self.resolver().resolve(name, **options)

    def names(self, name, **options):
        return [patch.name for patch in self.resolve(name, **options).point.patches]


@pytest.fixture
def project(tmp_path, world):
    made = Project(tmp_path, world)
    repository(made.root, {"README": "x"})
    made.commit(*made.patches)
    return made


@pytest.mark.parametrize(
    ("name", "patches"),
    [
        ("clean", ""),
        ("HEAD", "a b c"),
        ("worktree", "a b c"),
        ("2", "a b"),
        ("0002", "a b"),
        ("main", "a b c"),
        ("ref:main", "a b c"),
        ("HEAD-2", "a c"),
        ("HEAD-1-3", "b"),
        ("clean+2", "b"),
        ("clean+3+1", "a c"),
        ("2+3-1", "b c"),
        ("upstream:v0.2.0", ""),
        ("upstream:v0.2.0+2+3", "b c"),
    ],
)
def test_names(project, name, patches):
    resolved = project.resolve(name)
    assert [patch.slug for patch in resolved.point.patches] == patches.split()
    assert resolved.point.name == name
    assert resolved.warnings == ()


def test_the_profile_gives_flags_and_environment(project):
    point = project.resolve("HEAD").point
    assert (point.profile, point.flags, point.env) == ("tiny", {"tp-size": 1, "load-format": "dummy"}, {"A": "1"})
    assert project.resolve("HEAD@custom-ar").point.flags == {"tp-size": 8}
    assert project.resolve("HEAD", profile="custom-ar").point.profile == "custom-ar"
    assert project.resolve("HEAD@tiny", profile="custom-ar").point.profile == "tiny"


def test_edits_after_a_profile_and_a_profile_that_looks_like_an_edit(project):
    point = project.resolve("HEAD@custom-ar-2").point
    assert (point.profile, [patch.slug for patch in point.patches]) == ("custom-ar", ["a", "c"])
    point = project.resolve("HEAD@gpt-4").point
    assert (point.profile, len(point.patches)) == ("gpt-4", 3)
    point = project.resolve("HEAD@gpt-4-2").point
    assert (point.profile, [patch.slug for patch in point.patches]) == ("gpt-4", ["a", "c"])


def test_older_revisions_bring_their_queue_and_their_pin(project):
    old = project.pin
    project.pin = project.upstream.pin(commit=project.upstream.second, tag="v0.2.0")
    project.commit(project.patches[2])
    git(project.root, "tag", "now")
    assert project.names("HEAD~1") == ["0001-a", "0002-b", "0003-c"]
    assert project.resolve("HEAD~1").point.base == Base(old)
    assert project.names("now") == ["0003-c"]
    assert project.resolve("now").point.base == Base(project.pin)
    assert project.names("HEAD~1-2") == ["0001-a", "0003-c"]
    assert project.names(git(project.root, "rev-parse", "HEAD~1")) == ["0001-a", "0002-b", "0003-c"]


def test_upstream_revisions_are_frozen(project):
    point = project.resolve("upstream:main+3").point
    assert point.base.rev == project.upstream.second
    assert project.resolve("upstream:v0.1.0").point.base == Base(project.pin)
    with pytest.raises(UsageError, match=r"revision 'v9' is not in"):
        project.resolve("upstream:v9")


def test_a_commit_id_is_shown_short_and_means_the_same(project):
    whole = project.upstream.second
    point = project.resolve(f"upstream:{whole}+3").point
    assert point.name == f"upstream:{whole[:12]}+3"
    assert project.resolve(point.name).point == point


def test_a_ref_of_the_whole_name_wins_with_a_warning(project):
    git(project.root, "branch", "fix-2", "HEAD")
    git(project.root, "branch", "2", "HEAD")
    for name in ("fix-2", "2"):
        resolved = project.resolve(name)
        assert len(resolved.point.patches) == 3
        assert resolved.warnings == (f"{name} is a ref of this repository, and that is what it means here",)
    assert project.names("fix-2-1") == ["0002-b", "0003-c"]
    assert project.resolve("ref:fix-2").warnings == ()
    assert project.names("ref:fix-2-1") == ["0002-b", "0003-c"]
    assert project.names("0002") == ["0001-a", "0002-b"]


def test_reserved_words_stay_what_they_are(project):
    git(project.root, "branch", "clean")
    resolved = project.resolve("clean")
    assert resolved.point.patches == ()
    assert "ref:clean" in resolved.warnings[0]
    assert len(project.resolve("ref:clean").point.patches) == 3


def test_a_ref_with_an_at_sign(project):
    git(project.root, "branch", "ada@tiny")
    assert project.resolve("ada@tiny").point.profile == "tiny"
    assert len(project.resolve("ada@tiny@custom-ar").point.patches) == 3


def test_a_queue_on_disk_that_differs_is_told(project):
    project.on_disk(*project.patches[:2])
    resolved = project.resolve("worktree")
    assert [patch.slug for patch in resolved.point.patches] == ["a", "b"]
    assert resolved.warnings == ("the queue on disk differs from HEAD",)
    resolved = project.resolve("HEAD")
    assert len(resolved.point.patches) == 3
    assert "differs from HEAD, which is taken" in resolved.warnings[0]


def test_a_point_without_patches_is_not_told_that_the_queue_differs(project):
    project.on_disk(*project.patches[:2])
    assert project.resolve("clean").warnings == ()
    assert "differs from HEAD, which is taken" in project.resolve("clean+1").warnings[0]
    pin = project.root / "patches" / "pin.toml"
    pin.write_text(pin.read_text() + "\n")
    assert project.resolve("clean").warnings[0].startswith("the pin on disk differs from HEAD")


def test_other_files_do_not_make_the_queue_differ(project):
    write(project.root, {"README": "changed", "patches/notes.txt": "new"})
    assert project.resolve("worktree").warnings == ()


def test_a_repository_without_a_commit_and_a_folder_without_a_repository(tmp_path, world):
    project = Project(tmp_path, world)
    project.root.mkdir()
    project.on_disk(*project.patches)
    for _ in range(2):
        assert project.names("HEAD") == ["0001-a", "0002-b", "0003-c"]
        assert project.names("2") == ["0001-a", "0002-b"]
        assert project.resolve("worktree").warnings == ()
        assert project.resolve("clean").warnings == ("nothing is committed here yet: the queue on disk is taken",)
        with pytest.raises(UsageError, match="unknown point 'HEAD~1'"):
            project.resolve("HEAD~1")
        git(project.root, "init", "-q")


def test_a_queue_below_the_top_of_its_repository(tmp_path, world):
    project = Project(tmp_path, world)
    top = repository(tmp_path / "top", {"README": "x"})
    project.root = top / "rig" / "sglang"
    project.commit(*project.patches)
    assert project.names("HEAD") == ["0001-a", "0002-b", "0003-c"]
    project.on_disk()
    assert project.resolve("HEAD").warnings


def test_disabled_patches(project):
    text = format_patch(project.patches[1]).replace(b"Forwarded: no\n", b"Forwarded: no\nEnabled: no\n")
    project.commit(project.patches[0], parse_patch(text, filename="0002-b.patch"), project.patches[2])
    assert project.names("HEAD") == ["0001-a", "0003-c"]
    assert "disabled" in project.resolve("2").warnings[0]
    assert project.names("2+2") == ["0001-a", "0002-b"]


def test_a_patch_whose_requirement_was_taken_away_is_told(project):
    text = format_patch(project.patches[1]).replace(b"Forwarded: no\n", b"Forwarded: no\nRequires: a\n")
    project.commit(project.patches[0], parse_patch(text, filename="0002-b.patch"), project.patches[2])
    assert project.resolve("HEAD").warnings == ()
    assert project.resolve("HEAD-1").warnings == ("0002-b says that it requires a, which is not in this point",)


def test_a_folder_that_is_not_there(project):
    project.root = project.root / "nowhere"
    with pytest.raises(UsageError, match="cannot read .*nowhere"):
        project.resolve("worktree")


def test_a_gap_is_told(project):
    project.commit(project.patches[0], project.patches[2])
    assert "no 0002" in project.resolve("HEAD").warnings[0]


def test_a_queue_that_applies_only_with_an_offset_is_refused(project):
    project.commit(project.patches[2])
    text = format_patch(project.patches[2]).replace(b"-2,7 +2,7", b"-4,7 +4,7")
    project.commit(parse_patch(text, filename="0001-c.patch"))
    for name in ("HEAD", "worktree", "1", "main"):
        with pytest.raises(PointUnbuildable, match="0001-c applies only with an offset"):
            project.resolve(name)
    assert project.names("clean") == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("haed", "unknown point 'haed' (did you mean HEAD?)"),
        ("cleen", "unknown point 'cleen' (did you mean clean?)"),
        ("mian", "unknown point 'mian' (did you mean main?)"),
        ("HEAD~99", "unknown point 'HEAD~99'"),
        ("ref:nope", "unknown point 'nope'"),
        ("7", "has no patch 0007"),
        ("HEAD+7", "has no patch 0007"),
        ("HEAD-7", "HEAD-7: there is no patch 0007 to take away"),
        ("HEAD+2", "HEAD+2: patch 0002 is in it already"),
        ("HEAD@tyni", "unknown profile 'tyni'"),
        ("HEAD@", "unknown profile '@'"),
        ("run:x", "no run 'x'"),
        ("", "'' is not a point"),
        ("-5", "'-5' is not a point"),
        ("--help", "'--help' is not a point"),
        ("a b", "'a b' is not a point"),
        ("HEAD\n", "is not a point"),
    ],
)
def test_what_is_no_point(project, name, said):
    with pytest.raises(UsageError) as caught:
        project.resolve(name)
    assert said in caught.value.message
    assert caught.value.exit_code == 2


def test_a_revision_without_a_pin(project):
    with pytest.raises(UsageError, match=r"HEAD~1:patches has no pin\.toml"):
        project.resolve("HEAD~1")


def test_faults_of_the_queue_name_revision_file_and_line(project):
    write(project.root, {"patches/0002-b.patch": ""})
    with pytest.raises(UsageError, match=r"^patches/0002-b\.patch: the file is empty$"):
        project.resolve("worktree")
    git(project.root, "commit", "-qam", "bad")
    with pytest.raises(UsageError, match=r"^HEAD:patches/0002-b\.patch: the file is empty$"):
        project.resolve("HEAD")


def test_settings(project):
    point = project.resolve(
        "HEAD", settings=["flag:tp-size=4", "flag:load-format=", "env:A=", "env:B=x=y", "flag:--enable_dp=true"]
    ).point
    assert point.flags == {"tp-size": "4", "enable-dp": True}
    assert point.env == {"B": "x=y"}


@pytest.mark.parametrize("text", ["tp-size=4", "flag:tp-size", "flags:x=1", "env:=1", "env:A B=1", ""])
def test_what_is_no_setting(project, text):
    with pytest.raises(UsageError, match="is not a setting"):
        with_settings(project.resolve("clean").point, [text])


def test_a_run_with_edits_and_another_profile(project):
    recorded = Point("x", Base(project.pin, rev=project.upstream.second), tuple(project.patches[:2]), "tiny", {"a": 1})
    project.runs = {"r1": recorded}.__getitem__
    point = project.resolve("run:r1").point
    assert (point.patches, point.base, point.flags, point.name) == (recorded.patches, recorded.base, {"a": 1}, "run:r1")
    assert project.names("run:r1-1+3") == ["0002-b", "0003-c"]
    assert project.resolve("run:r1@custom-ar").point.flags == {"tp-size": 8}


RUN, OTHER_RUN = "20261129-000000-aaaa", "20261129-000001-bbbb"


def record_of(project, identifier=RUN, **changes):
    entry = PointEntry(
        **{
            "name": "HEAD",
            "profile": "gpt-4",
            "until": "ready",
            "upstream": project.pin.upstream,
            "pin": project.pin.commit,
            "tag": project.pin.tag,
            "patches": [
                PatchEntry(name=p.name, subject=p.subject, sha256=hashlib.sha256(format_patch(p)).hexdigest())
                for p in project.patches
            ],
            "flags": {"api-key": "***", "gpus": ["0", "1"], "tp-size": 2},
            "env": {"A": "1"},
            "secret_env": ("HF_TOKEN",),
            **changes,
        }
    )
    record = Record(
        id=identifier,
        created="2026-01-01T00:00:00+00:00",
        box="local",
        point=entry,
        content_id="c",
        verdict={"outcome": "ready"},
    )
    store = Store(project.root / ".patchbisect" / "runs")
    store.save(record, Attachments(patches={patch.name: format_patch(patch) for patch in project.patches}))
    return store


def test_a_recorded_point_is_what_ran(project):
    point = recorded_point(record_of(project), RUN, environ={"HF_TOKEN": "secret"}, settings=SETTINGS)
    assert point.patches == tuple(project.patches)
    assert point.base == Base(project.pin)
    assert point.flags == {"api-key": "sk-today", "gpus": ("0", "1"), "tp-size": 2}
    assert point.env == {"A": "1", "HF_TOKEN": "secret"}


def test_a_patch_that_is_no_longer_the_text_that_ran_is_not_run(project):
    store = record_of(project)
    path = next(store.path(RUN).glob("patches/*.patch"))
    path.write_bytes(path.read_bytes() + b"\n# cleaned")
    with pytest.raises(UsageError, match=rf"{path.name} is not the text that ran"):
        recorded_point(store, RUN, environ={"HF_TOKEN": "secret"}, settings=SETTINGS)


def test_a_log_that_was_adopted_names_no_code(project):
    store = record_of(project)
    adopted = store.load(RUN).model_copy(update={"id": OTHER_RUN, "origin": "adopted"})
    store.save(adopted, Attachments())
    with pytest.raises(UsageError, match="which code it ran is not known"):
        recorded_point(store, OTHER_RUN, environ={}, settings=SETTINGS)


def test_a_secret_that_is_not_there_today(project):
    store = record_of(project)
    with pytest.raises(UsageError, match="HF_TOKEN"):
        recorded_point(store, RUN, environ={}, settings=SETTINGS)
    store = record_of(project, OTHER_RUN, profile="gone", secret_env=())
    with pytest.raises(UsageError, match=r"a secret --api-key that no profile 'gone' gives today"):
        recorded_point(store, OTHER_RUN, environ={}, settings=SETTINGS)


def test_a_resolver_of_a_project_finds_its_runs(project, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.delenv("PATCHBISECT_HOME", raising=False)
    write(
        project.root, {"invoke.yaml": "patchbisect: {profile: gpt-4, profiles: {gpt-4: {flags: {api-key: today}}}}\n"}
    )
    record_of(project)
    loaded = load_project(project.root)
    resolver = PointResolver.of(loaded, mirror=Mirror(project.state, source="git", clone=str(project.upstream.path)))
    assert resolver.resolve(f"run:{RUN}").point.flags["api-key"] == "today"


@pytest.mark.parametrize(
    "name",
    [
        "HEAD:patches",
        "HEAD^{tree}",
        "^HEAD",
        "HEAD..HEAD",
        "ref:^main",
        "upstream:^HEAD",
        "$(touch pwned)",
        "`touch pwned`",
        "x;touch",
        "ref:--help",
        "ref:--git-dir=x",
        "upstream:--upload-pack=touch",
        "upstream:$(touch)",
        "run:../../etc",
        "../../etc/passwd",
        "HEAD@{nonsense}",
        "@tiny",
        "+1",
        "ref:",
        "99999",
        "HEAD+99999",
        "x" * 5000,
        "ü",
    ],
)
def test_hostile_names_do_no_harm(project, name):
    before = sorted(path.name for path in project.root.iterdir())
    with pytest.raises(UsageError):
        project.resolve(name)
    assert sorted(path.name for path in project.root.iterdir()) == before


words = st.sampled_from(
    ["clean", "HEAD", "worktree", "main", "2", "~1", "^", "@", "tiny", "+1", "-2", "-", "+", ":", "ref:", "é", "."]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, max_size=5).map("".join))
def test_any_name_is_a_point_or_a_usage_error(project, name):
    try:
        point = project.resolve(name).point
    except UsageError as error:
        assert error.message
    else:
        assert set(point.patches) <= set(project.patches)
        assert point.profile == "tiny"


def test_the_queue_of_a_revision(project):
    project.on_disk(project.patches[0])
    resolver = project.resolver()
    assert [patch.slug for patch in resolver.queue()[1].patches] == ["a"]
    assert [patch.slug for patch in resolver.queue("HEAD")[1].patches] == ["a", "b", "c"]
    assert resolver.queue("main")[0] == project.pin


def test_a_point_with_settings_is_named_with_them(project) -> None:
    point = project.resolve("clean").point
    changed = with_settings(point, ["flag:tp-size=2", "env:HF_TOKEN=hf_secret", "env:GONE="])
    assert changed.name == "clean tp-size=2 HF_TOKEN=*** GONE="


def test_a_package_is_set_by_its_one_spelling_and_needs_a_version() -> None:
    point = Point(name="p", base=Base(Pin("u", "1" * 40, "v0")), patches=(), profile="x")
    changed = with_settings(point, ["package:Tiny.Dep=2.0", "package:other=1+cu128", "package:other="])
    assert changed.packages == {"tiny-dep": "2.0"}
    with pytest.raises(UsageError, match="'newest' is not a version"):
        with_settings(point, ["package:torch=newest"])


def test_a_flag_that_the_code_does_not_take_is_said_with_the_nearest(tmp_path):
    upstream = Upstream(tmp_path / "upstream-of-its-own")
    upstream.folder.mkdir()
    arguments = 'add("--model-path", "--model")\nadd("--mem-fraction-static")\nadd("--tp-size")\n'
    pin = upstream.pin(commit=commit(upstream.own(), {"python/sglang/srt/server_args.py": arguments}), tag="")
    patch = upstream.patch_of(1, "mine", {"python/sglang/mine.py": 'FLAG = "--mine-too"\n'})
    made = Project(tmp_path, (upstream, [patch], tmp_path / "state"))
    made.pin = pin
    repository(made.root, {"README": "x"})
    made.commit(patch)
    strange = ["flag:mem-fracton-static=0.1", "flag:zzz=", "env:WHATEVER=1"]
    assert made.resolve("HEAD", settings=strange).warnings == (
        f"SGLang at {pin.commit[:12]} has no flag --mem-fracton-static (did you mean mem-fraction-static?)",
        f"SGLang at {pin.commit[:12]} has no flag --zzz",
    )
    known = ["flag:mem-fraction-static=0.1", "flag:tp=2", "flag:--mine_too=true"]
    assert made.resolve("HEAD", settings=known).warnings == ()
    assert made.resolve("clean", settings=known[2:]).warnings != ()


def test_flags_are_not_judged_by_code_that_does_not_say_which_it_takes(project):
    assert project.resolve("HEAD", settings=["flag:zzz=1"]).warnings == ()
