"""A new queue in somebody's own repository: pin, settings, tasks, and the workflow that looks after it."""

from __future__ import annotations

from pathlib import Path

from patchbisect.config import PIN_FILE
from patchbisect.errors import UsageError
from patchbisect.model import Pin
from patchbisect.patchqueue import format_pin

SGLANG = Pin(
    upstream="https://github.com/sgl-project/sglang.git",
    tag="v0.5.9",
    commit="bbe9c7eeb520b0a67e92d133dfc137a3688dc7f2",
    release="0.5.9",
    wheel_sha256="8a936c4d25fea605f44254e533cff2144c73ceffbc1f8738aba393461bbb64d1",
)
"""The newest pin that this project's own queue was proven on."""

_SETTINGS = """\
# Boxes and profiles, all under the one key `patchbisect:`. Quote environment values: YAML changes on, 012 and 0.50.
patchbisect:
  box: local
  profile: tiny
  boxes:
    local:
      embedded: true
    # rig:
    #   host: rig.example.org
    #   python: /opt/sglang/bin/python
  profiles:
    tiny:
      until: ready
      flags:
        model-path: "{tiny-model}"
        load-format: dummy
        device: cpu
        attention-backend: torch_native
        skip-tokenizer-init: true
        mem-fraction-static: "0.05"
        max-total-tokens: 4096
"""

_TASKS = '''\
"""The tasks of patchbisect, for plain invoke. Without the last line they can be taken in beside your own."""

from patchbisect.program import instead_of_invoke
from patchbisect.tasks import namespace

__all__ = ["namespace"]

instead_of_invoke(namespace)
'''

_WORKFLOW = """\
name: queue
on:
  pull_request:
permissions: {}
concurrency:
  group: queue-${{ github.ref }}
  cancel-in-progress: true
jobs:
  review:
    name: Lint and review
    runs-on: ubuntu-latest
    timeout-minutes: 15
    permissions:
      contents: read
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          fetch-depth: 0
          persist-credentials: false
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with:
          python-version: "3.11"
      - run: python -m pip install 'patchbisect[lint]'
      - run: invoke lint
      - if: always()
        env:
          BASE: ${{ github.event.pull_request.base.sha }}
        run: invoke review --base "$BASE" --markdown >> "$GITHUB_STEP_SUMMARY"
"""

_FILES = {
    "invoke.yaml": _SETTINGS,
    "tasks.py": _TASKS,
    ".github/workflows/queue.yml": _WORKFLOW,
}
_IGNORED = ".patchbisect/\n"


def start_queue(folder: Path, *, pin: Pin) -> list[str]:
    """Write what a queue needs; files that are there stay as they are. Gives the names of those written.

    Raises UsageError where there is a queue already.
    """
    if (folder / PIN_FILE).exists():
        raise UsageError(f"{folder} has a queue already ({PIN_FILE})", remedy="invoke queue shows it.")
    written: list[str] = []
    for name, text in _FILES.items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(name)
    ignore = folder / ".gitignore"
    known = ignore.read_text(encoding="utf-8") if ignore.exists() else ""
    if _IGNORED not in known:
        ignore.write_text(known + ("\n" if known and not known.endswith("\n") else "") + _IGNORED, encoding="utf-8")
        written.append(".gitignore")
    (folder / PIN_FILE).parent.mkdir(parents=True, exist_ok=True)
    # Last, for it is what makes the folder a queue: an init that was cut short can be run again.
    (folder / PIN_FILE).write_bytes(format_pin(pin))
    return sorted([*written, str(PIN_FILE)])
