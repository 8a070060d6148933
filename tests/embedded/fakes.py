"""A machine with interpreters, virtual environments and a pip that are only files: what ``setup`` runs, in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchbisect.embedded.commands import Finished

PINS = "# tried\npip==26.3\nalpha==1.0\nbeta-two==2.0\ntorch==2.13.0\n"


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it but what the kernel does."""


def cpu_report(
    name: str = "torch", version: str = "2.13.0+cpu", requires: Sequence[str] = ("sympy",)
) -> dict[str, Any]:
    return {
        "install": [{"metadata": {"name": name, "version": version, "requires_dist": list(requires)}}],
        "environment": {"platform_system": "Linux", "platform_machine": "x86_64", "python_version": "3.11"},
    }


@dataclass
class FakeMachine:
    """``interpreters`` maps a path to what it answers a probe; ``reports`` maps a version, or an index, to pip's
    report for torch there.
    """

    interpreters: Mapping[str, Mapping[str, Any]]
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    """Part of a command line → the output it fails with."""
    kill_at: int | None = None
    """Number of the command, from 0, in the middle of which everything is killed."""
    ran: list[str] = field(default_factory=list)
    envs: list[Mapping[str, str]] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        on_line: Callable[[str], None],
        keep_open: Sequence[int],
    ) -> Finished:
        killed = self.kill_at == len(self.ran)
        command = " ".join(argv)
        self.ran.append(command)
        self.envs.append(env)
        for part, output in self.fails.items():
            if part in command:
                return Finished(exit_code=1, output=output)
        output = self._do(list(argv), killed=killed, on_line=on_line)
        if killed:
            raise Killed
        if output is None:
            return Finished(exit_code=1, output="ERROR: No matching distribution found for what was asked\n")
        return Finished(exit_code=0, output=output)

    def _do(self, argv: list[str], *, killed: bool, on_line: Callable[[str], None]) -> str | None:
        if argv[1] == "-I":
            answer = self.interpreters.get(argv[0])
            return None if answer is None else json.dumps(answer)
        if argv[1:3] == ["-m", "venv"]:
            return self._venv(Path(argv[3]), str(self.interpreters[argv[0]]["version"]), killed=killed)
        if argv[1:3] == ["-m", "pip"]:
            return self._pip(Path(argv[0]).parent.parent, argv[3:], killed=killed, on_line=on_line)
        return 'noise\nVERSIONS {"python": "3.11.7", "torch": "2.13.0+cpu"}\n'

    def _venv(self, venv: Path, version: str, *, killed: bool) -> str:
        assert not venv.exists(), "a half-made environment must be gone before it is made anew"
        site = venv / "lib" / f"python{version}" / "site-packages"
        site.mkdir(parents=True)
        if not killed:
            (venv / "bin").mkdir()
            (venv / "bin" / "python").write_text("")
        return ""

    def _pip(self, venv: Path, arguments: list[str], *, killed: bool, on_line: Callable[[str], None]) -> str:
        site = next(venv.glob("lib/python*/site-packages"))
        if arguments[0] == "uninstall":
            for name in arguments[2:]:
                for info in site.glob(f"{name.replace('-', '_')}-*.dist-info"):
                    shutil.rmtree(info)
            return ""
        if "--dry-run" in arguments:
            target = next(a.removeprefix("--report=") for a in arguments if a.startswith("--report="))
            version = site.parent.name.removeprefix("python")
            place = self.envs[-1].get("PIP_INDEX_URL", version)
            report = self.reports.get(place, cpu_report())
            Path(target).write_text(json.dumps(report))
            return "" if report else None
        if "-r" in arguments:
            wanted = Path(arguments[arguments.index("-r") + 1]).read_text().splitlines()[1:]
        else:
            wanted = [arguments[-1]]
        missing = [line for line in wanted if not _dist_info(site, line).exists()]
        for number, line in enumerate(missing):
            on_line(f"Downloading {line.replace('==', '-')}-py3-none-any.whl (1 kB)")
            on_line("Progress 512 of 1024")
            if killed and number == len(missing) // 2:
                _dist_info(site, line).mkdir()
                (_dist_info(site, line) / "METADATA").write_text("")
                return ""
            _install(site, line)
        return ""


def _dist_info(site: Path, line: str) -> Path:
    name, version = line.split("==")
    return site / f"{name.replace('-', '_')}-{version}.dist-info"


def _install(site: Path, line: str) -> None:
    info = _dist_info(site, line)
    module = site / f"{info.name.split('-')[0]}.py"
    module.write_text("x = 1\n")
    info.mkdir()
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text(f"{module.name},sha256=x,6\n{info.name}/INSTALLER,sha256=x,4\n{info.name}/RECORD,,\n")
