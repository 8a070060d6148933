from pathlib import Path

import pytest

from patchbisect.config import Settings, find_root, load_project, load_settings, remedy_for
from patchbisect.errors import UsageError


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "invoke.yaml"
    path.write_text(text)
    return load_settings(path)


def test_a_missing_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "invoke.yaml").box == "local"


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ("patchbisect: {boxs: {}}", "patchbisect.boxs", "boxes"),
        ("patchbisect: {boxes: {rig: {hots: x}}}", "patchbisect.boxes.rig.hots", "host"),
        ("patchbisect: {profiles: {p: {flag: {}}}}", "patchbisect.profiles.p.flag", "flags"),
        ("patchbisect: {upstream: {sourc: git}}", "patchbisect.upstream.sourc", "source"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(tmp_path: Path, text: str, key: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, text)
    assert f"unknown key '{key}'" in caught.value.message
    assert f"did you mean '{near}'?" in caught.value.message


@pytest.mark.parametrize("value", ["on", "012", "12:30", "0.50", "1", "null"])
def test_an_unquoted_environment_value_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match="quote it"):
        settings(tmp_path, f"patchbisect: {{profiles: {{p: {{env: {{X: {value}}}}}}}}}")


def test_a_quoted_environment_value_stays_as_it_is(tmp_path: Path) -> None:
    read = settings(tmp_path, 'patchbisect: {profiles: {p: {env: {X: "0.50", Y: "on"}}}}')
    assert dict(read.profiles["p"].env) == {"X": "0.50", "Y": "on"}


def test_broken_yaml_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, "patchbisect:\n  boxes: [\n")
    assert "invoke.yaml:3" in caught.value.message


@pytest.mark.parametrize(("kind", "wanted"), [("box", "locl"), ("profile", "tinny")])
def test_an_unknown_name_gets_the_nearest(tmp_path: Path, kind: str, wanted: str) -> None:
    read = settings(tmp_path, "patchbisect: {profiles: {tiny: {}}}")
    with pytest.raises(UsageError) as caught:
        getattr(read, f"{kind}_named")(wanted)
    assert wanted in caught.value.message
    assert "did you mean" in caught.value.remedy


def test_the_root_is_found_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATCHBISECT_HOME", raising=False)
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "pin.toml").write_text("")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_root(below) == tmp_path
    assert load_project(below).state == tmp_path / ".patchbisect"
    monkeypatch.setenv("PATCHBISECT_HOME", str(tmp_path / "elsewhere"))
    assert load_project(below).state == tmp_path / "elsewhere"


def test_outside_a_queue_repository_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pin.toml"):
        find_root(tmp_path)


def test_the_shipped_settings_are_valid() -> None:
    shipped = load_settings(Path(__file__).parent.parent / "invoke.yaml")
    assert shipped.profile_named(None)[0] == "tiny"
    assert shipped.box_named(None)[1].embedded


def test_the_commented_examples_are_valid_when_uncommented(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "invoke.yaml").read_text()
    live = []
    for line in text.splitlines():
        body = line.lstrip(" ")
        indent = line[: len(line) - len(body)]
        is_example = body.startswith("# ") and indent and (":" in body or body.startswith("#  "))
        live.append(indent + body[2:] if is_example and not body[2:3].isupper() else line)
    read = settings(tmp_path, "\n".join(live))
    wanted = {
        "kimi-baseline",
        "kimi-custom-ar",
        "kimi-flashinfer-fusion",
        "kimi-symm-mem",
        "kimi-ep-a2a",
        "kimi-eagle3",
    }
    assert wanted <= set(read.profiles)
    assert read.boxes["rig"].host == "rig.example.org"
    assert read.profiles["kimi-custom-ar"].env["SGLANG_FORCE_CUSTOM_AR_PCIE"] == "1"


TASKS = ["apply-queue", "bisect", "box.status", "launch", "lint", "queue", "show", "split", "stop"]
BOX = ["agent-python", "dir", "env", "gpus", "host", "lease-s", "python", "user"]
FLAGS = ["--bad-set", "--bad-when", "--budget-launches", "--budget-minutes", "--profile", "--set", "--wait-for-box"]


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("lanuch", TASKS, "'launch'"),
        ("apply", TASKS, "'apply-queue'"),
        ("status", TASKS, "'box.status'"),
        ("hostname", BOX, "'host'"),
        ("usr", BOX, "'user'"),
        ("lease", BOX, "'lease-s'"),
        ("agent_pyton", BOX, "'agent-python'"),
        ("--profil", FLAGS, "'--profile'"),
        ("--budget", FLAGS, "'--budget-launches' or '--budget-minutes'"),
        ("--wait", FLAGS, "'--wait-for-box'"),
        ("OOM", ["oom", "crash"], "'oom'"),
    ],
)
def test_a_slip_or_a_part_of_a_name_is_told_what_it_means(name: str, known: list[str], meant: str) -> None:
    assert remedy_for(name, known) == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "known"),
    [("install", TASKS), ("start", TASKS), ("path", BOX), ("", TASKS), ("--parallel", FLAGS), ("--worst", FLAGS)],
)
def test_a_word_that_is_no_slip_is_told_the_known_ones(name: str, known: list[str]) -> None:
    assert remedy_for(name, known) == f"known: {', '.join(known)}"


def test_where_there_is_nothing_that_is_said() -> None:
    assert remedy_for("x", []) == "there are none"
