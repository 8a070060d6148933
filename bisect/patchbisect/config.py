"""``invoke.yaml`` → typed settings.

Everything stands under the one key ``patchbisect:``. An unknown key is an error that names the nearest one:
a misspelt setting that is silently ignored costs days.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from patchbisect.errors import UsageError
from patchbisect.model import Stage

SETTINGS_FILE = "invoke.yaml"
PIN_FILE = Path("patches") / "pin.toml"
DEMO = "demo"
"""Names the demo's last run or bisection, and the part of the state that keeps them."""

OtherWheels = Literal["refuse", "build", "ignore"]

FlagValue = bool | int | float | str | tuple[str, ...]


_LIKE = 0.65
"""Likeness (difflib's ratio) from which a word is a slip for another. Tried on some 90 slips and foreign words: at 0.5
a third of the foreign ones were taken for a name of ours, from 0.67 slips were missed."""

_MOST_MEANT = 3


def remedy_for(name: str, known: Iterable[str]) -> str:
    """``"did you mean 'x'?"``, or the known names where nothing is near."""
    names = sorted(known)
    if meant := " or ".join(f"'{one}'" for one in _meant(name, names)):
        return f"did you mean {meant}?"
    return f"known: {', '.join(names)}" if names else "there are none"


def _meant(name: str, names: Sequence[str]) -> list[str]:
    """The few that have it as their beginning or as one of their words; else the one that looks like it."""
    bare = {one.strip("-").lower(): one for one in names}
    word = name.strip("-").lower()
    having = [one for plain, one in bare.items() if word and (plain.startswith(word) or word in re.split(r"\W", plain))]
    if 0 < len(having) <= _MOST_MEANT:
        return having
    return [bare[plain] for plain in difflib.get_close_matches(word, bare, n=1, cutoff=_LIKE)]


def _quoted(value: Any) -> Any:
    # YAML reads on, 012, 12:30 and 0.50 as True, 10, 750 and 0.5; the server would get another value than was written.
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string: quote it in {SETTINGS_FILE}, YAML changes unquoted values")
    return value


Quoted = Annotated[str, BeforeValidator(_quoted)]


class _Settings(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
        use_attribute_docstrings=True,
    )


class Upstream(_Settings):
    """Where SGLang's code comes from."""

    source: Literal["auto", "git", "release"] = "auto"
    """``git``: a clone of the pin's upstream. ``release``: wheels. ``auto``: git if it answers, else release."""
    clone: str | None = None
    """A local clone to take commits from instead of the pin's URL."""
    pip_args: tuple[str, ...] = ()
    """More arguments for pip when a release is downloaded."""


class EmbeddedSettings(_Settings):
    """The box on this machine without a GPU."""

    torch_index: str | None = "https://download.pytorch.org/whl/cpu"
    """``--index-url`` for a CPU build of torch, used where pip's plain torch would be a CUDA build. Null: never."""
    python: str | None = None
    """Interpreter to build the environment with; default: the first on PATH that has wheels."""


class BoxConfig(_Settings):
    """One machine, or container, that can run a server."""

    embedded: bool = False
    """This machine with the CPU-only environment of ``invoke setup``."""
    host: str | None = None
    """Host name or alias of ssh's configuration."""
    user: str | None = None
    """SSH user, where ssh's configuration does not say."""
    port: int | None = None
    """SSH port, where ssh's configuration does not say."""
    prefix: tuple[str, ...] = ()
    """A command prefix that reaches the box, like ``[docker, exec, -i, sglang]``."""
    dir: str | None = None
    """Our directory on the box. Default: ``~/.patchbisect-box``, for ``local`` the state directory's ``box/``."""
    python: str | None = None
    """The server's interpreter on the box; `~` is the home there, as in every path of a box."""
    lease_dir: str = ""
    """Where the lease is kept. Default: one place for all users of the machine where it has GPUs, else in ``dir``."""
    agent_python: str | None = None
    """The agent's interpreter (3.9 or later, standard library). Default: the server's, which also has ``pynvml``."""
    checkout: str | None = None
    """The user's own SGLang clone on the box: base commits and built files are taken from it; never written."""
    gpus: tuple[int, ...] = ()
    """GPUs that belong to this box, by the numbers of ``nvidia-smi``; its servers see no others. Empty: all."""
    gpu_residents: tuple[str, ...] | None = None
    """Programs that live on the GPUs for good, as a process list calls them: they make no trial void, and what they
    hold belongs to the baseline. Default: ``[nvidia-cuda-mps-server]``."""
    other_wheels: OtherWheels | None = None
    """What becomes of a base that needs other wheels than the box has: ``refuse`` it as untestable, ``build`` an
    environment for it on the box, or ``ignore`` that. Default: refuse; for the embedded box, ignore."""
    pip_args: tuple[str, ...] = ()
    """More arguments for pip where it builds such an environment: ``[--find-links, /srv/wheels]``."""
    environments_gb: float | None = None
    """What these environments may take on the box (GiB); those not used for longest are dropped. Default: 60."""
    env: Mapping[str, Quoted] = Field(default_factory=dict)
    """Variables of every server on this box, below the profile's own."""
    pythonpath: tuple[str, ...] = ()
    """More entries after the point's code."""
    min_free_gb: float | None = None
    """Free disk below which a launch is not begun (GiB). Default: 1."""
    gpu_idle_gb: float | None = None
    """What an idle GPU may use without a process (GiB), as a card with a desktop on it does. Default: 1.5."""
    gpu_slack_gb: float | None = None
    """How far above its baseline a GPU may be when a launch begins (GiB). Default: 0.5."""
    gpu_budget_s: float | None = None
    """How long GPU memory may take to come back after the last process (seconds). Default: 15."""
    lease_s: float | None = Field(default=None, ge=10)
    """How long a lease lives that its client does not renew, as when it was killed (seconds). Default: 120."""
    abandon_s: float | None = Field(default=None, gt=0)
    """How long a server lives that no client follows, unless it is kept on purpose (seconds). Default: 3600."""
    link_timeout_s: float | None = Field(default=None, ge=5)
    """A link that brings nothing for so long counts as lost (seconds; the agent speaks every 2). Default: 15."""
    link_patience_s: float | None = None
    """How long a lost link is tried again before the box is given up (seconds). Default: 900."""
    build_sources: tuple[str, ...] | None = None
    """What ``build`` makes its files from, as paths in SGLang's repository."""
    build: tuple[str, ...] = ()
    """Command that builds what git does not track, when its sources differ from the checkout's."""

    @property
    def wheels_policy(self) -> OtherWheels:
        return self.other_wheels or ("ignore" if self.embedded else "refuse")


class Profile(_Settings):
    """A named launch command."""

    until: Literal["kv-allocated", "ready"] = "ready"
    """How far a start must get to count as good."""
    flags: Mapping[str, FlagValue] = Field(default_factory=dict)
    """Without dashes: ``true`` is a bare flag, ``false`` leaves it out, a list gives several values."""
    env: Mapping[str, Quoted] = Field(default_factory=dict)
    """Variables of the server."""
    port: int | None = None
    """HTTP port. Default: a free one, anew for each launch."""


class Settings(_Settings):
    """All of ``patchbisect:``."""

    box: str = "local"
    """The box where no ``--box`` is given."""
    profile: str = "tiny"
    """The profile where neither ``--profile`` nor ``POINT@PROFILE`` is given."""
    upstream: Upstream = Upstream()
    """See below."""
    embedded: EmbeddedSettings = EmbeddedSettings()
    """See below."""
    boxes: Mapping[str, BoxConfig] = Field(default_factory=lambda: {"local": BoxConfig(embedded=True)})
    """By name; see below. Default: ``local``, this machine with the embedded environment."""
    profiles: Mapping[str, Profile] = Field(default_factory=dict)
    """By name; see below."""
    secrets: tuple[str, ...] = ()
    """More names of variables and flags whose values are secret, beside those that look like one."""
    silence: Mapping[Stage, float] = Field(default_factory=dict)
    """Seconds of silence per stage after which a server counts as hung, where the default does not fit."""

    def box_named(self, name: str | None) -> tuple[str, BoxConfig]:
        """The box of that name, or the default one. Raises UsageError."""
        wanted = name or self.box
        if wanted not in self.boxes:
            raise UsageError(f"unknown box '{wanted}'", remedy=remedy_for(wanted, self.boxes))
        return wanted, self.boxes[wanted]

    def profile_named(self, name: str | None) -> tuple[str, Profile]:
        """The profile of that name, or the default one. Raises UsageError."""
        wanted = name or self.profile
        if wanted not in self.profiles:
            raise UsageError(f"unknown profile '{wanted}'", remedy=remedy_for(wanted, self.profiles))
        return wanted, self.profiles[wanted]


@dataclass(frozen=True, slots=True)
class Project:
    """A queue repository: its root, its state directory, its settings."""

    root: Path
    state: Path
    settings: Settings
    shelf: str = ""
    """The part of the state that keeps runs and bisections; empty: the state itself."""

    @property
    def runs(self) -> Path:
        return self.state / self.shelf / "runs"

    @property
    def bisections(self) -> Path:
        return self.state / self.shelf / "bisections"

    @property
    def demo(self) -> Project:
        """The same project as the demo uses it: its runs are never taken for one's own."""
        return replace(self, shelf=DEMO)

    @property
    def patches(self) -> Path:
        return self.root / "patches"


def find_root(start: Path) -> Path:
    """The nearest directory at or above ``start`` that holds ``patches/pin.toml``. Raises UsageError."""
    for candidate in (start, *start.parents):
        if (candidate / PIN_FILE).is_file():
            return candidate
    raise UsageError(
        f"no {PIN_FILE} in {start} or above it",
        remedy="run this inside a patch queue repository",
    )


def load_project(start: Path | None = None) -> Project:
    """The repository around ``start`` (default: the working directory) with its settings. Raises UsageError."""
    root = find_root((start or Path.cwd()).resolve())
    home = os.environ.get("PATCHBISECT_HOME")
    state = Path(home).expanduser().resolve() if home else root / ".patchbisect"
    return Project(root=root, state=state, settings=load_settings(root / SETTINGS_FILE))


def load_settings(path: Path) -> Settings:
    """Read one settings file; a missing one gives the defaults. Raises UsageError with file and key."""
    if not path.is_file():
        return Settings()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UsageError(f"{where}: not valid YAML: {error.problem}", remedy="mend that line") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid YAML: {error}", remedy="mend the file") from error
    section = (document or {}).get("patchbisect") if isinstance(document or {}, dict) else None
    try:
        return Settings.model_validate(section or {})
    except ValidationError as error:
        raise UsageError(_explain(path, error), remedy="mend that key; docs/settings.md lists them all") from error


def _explain(path: Path, error: ValidationError) -> str:
    first = error.errors()[0]
    keys = [str(part) for part in first["loc"] if part not in ("bool", "int", "float", "str", "tuple[str, ...]")]
    where = ".".join(["patchbisect", *keys])
    if first["type"] == "extra_forbidden":
        return f"{path}: unknown key '{where}'; {remedy_for(keys[-1], _known_keys(keys[:-1]))}"
    return f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}"


def _known_keys(path: list[str]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "upstream": Upstream,
        "embedded": EmbeddedSettings,
        "boxes": BoxConfig,
        "profiles": Profile,
    }
    model = sections.get(path[0], Settings) if path else Settings
    return [field.alias or name for name, field in model.model_fields.items()]
