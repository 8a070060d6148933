"""The queue checked: lint, facts, review; and a new one started."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import invoke

from patchbisect.tasks import workshop
from patchbisect.tasks.face import console, emit, negative, say, task, writing
from patchbisect.tasks.lab import mirror_of

if TYPE_CHECKING:
    from patchbisect.maintain.lint import Finding


@task(
    help={
        "only": "the patches to look at, as 3,5",
        "at": "a revision of this repository instead of the files on disk",
        "rules": "list the rules instead",
        "json": workshop.JSON,
    }
)
def lint(ctx: invoke.Context, only: str = "", at: str = "", rules: bool = False, json: bool = False) -> None:
    """Does each patch stand where it says, compile, and, if it only looks, change nothing? No launch is needed.

    Exit 1 where something is wrong. `Waive: RULE reason` in a patch allows what a rule forbids.

    Example: invoke lint
    """
    from patchbisect.config import load_project
    from patchbisect.maintain.lint import RULES, finding_to_json
    from patchbisect.maintain.reviewing import files_at, lint_files

    if rules:
        _tell_rules(RULES, json=json)
        return
    project = load_project()
    files = files_at(project, at)
    chosen = workshop.numbers(only, files)
    workshop.require_numbers(chosen, files)
    found = lint_files(files, mirror=mirror_of(project), only=chosen)
    wrong = [one for one in found if one.counts]
    if json:
        emit({"findings": [finding_to_json(one) for one in found], "wrong": len(wrong)})
    else:
        _show(found)
        patches = len(set(chosen)) or sum(name.endswith(".patch") for name in files)
        waived = sum(1 for one in found if one.waived)
        console().print(
            f"{patches} patches: {len(wrong)} wrong, {waived} waived, {len(found) - len(wrong) - waived} warnings",
            markup=False,
        )
    if wrong:
        raise negative()


def _tell_rules(rules: Any, *, json: bool) -> None:
    if json:
        emit(dict(rules))
        return
    for name, text in rules.items():
        console().print(f"{name:14} {text}", markup=False)


def _show(found: Iterable[Finding]) -> None:
    """Waivers in a line each; what is wrong stands last, next to the prompt."""
    from patchbisect.maintain.lint import waivers_used
    from patchbisect.report.queue import note

    found = list(found)
    for waiver in waivers_used(found):
        console().print(note(f"waived: {waiver}"))
    for one in sorted((one for one in found if not one.waived), key=lambda one: one.counts):
        console().print(note(f"{one.severity}: {one}"))
        if one.remedy:
            console().print(note(one.remedy, indent=2))


@task(help={"svg": "write what builds on what as a picture into this file", "json": workshop.JSON})
def facts(ctx: invoke.Context, svg: str = "", json: bool = False) -> None:
    """What each patch touches, what it builds on, which run proved it last, how old it is, where it was sent.

    Example: invoke facts --svg queue.svg
    """
    from patchbisect.config import load_project
    from patchbisect.maintain.facts import graph_svg
    from patchbisect.maintain.reviewing import facts_in, files_at

    project = load_project()
    found = facts_in(project, files_at(project), mirror=mirror_of(project))
    if svg:
        with writing(svg) as file:
            file.write_text(graph_svg(found), encoding="utf-8")
        say(f"written: {svg}")
    if json:
        emit(
            [
                {
                    "patch": fact.patch.name,
                    "functions": fact.functions,
                    "builds_on": fact.builds_on,
                    "proof": None if fact.proof is None else {"run": fact.proof.run, "box": fact.proof.box},
                    "age_days": fact.age_days,
                    "forwarded": fact.patch.trailer("Forwarded"),
                }
                for fact in found
            ]
        )
        return
    from patchbisect.report.queue import note
    from patchbisect.report.words import counted

    for fact in found:
        proof = f"{fact.proof.outcome} in {fact.proof.run} on {fact.proof.box}" if fact.proof else "not proven"
        sent = fact.patch.trailer("Forwarded")
        console().print(note(f"{fact.patch.name}  {counted(fact.age_days, 'day')}, {proof}, forwarded: {sent}"))
        for path, names in fact.functions.items():
            console().print(note(f"{path.removeprefix('python/')}: {', '.join(names)}", indent=2))
        if fact.builds_on:
            console().print(note(f"builds on {', '.join(fact.builds_on)}", indent=2))


@task(
    help={
        "base": "the revision to compare with: a branch, a tag, a commit of this repository",
        "head": "a revision instead of the files on disk",
        "markdown": "as a comment for a pull request",
        "json": workshop.JSON,
    }
)
def review(ctx: invoke.Context, base: str = "main", head: str = "", markdown: bool = False, json: bool = False) -> None:
    """What a reviewer needs: patches added, changed, removed, reordered; pin; lint; whether it started; risks.

    Example: invoke review --base main --markdown
    """
    from patchbisect.config import load_project
    from patchbisect.errors import UsageError
    from patchbisect.maintain.review import markdown as as_markdown
    from patchbisect.maintain.review import refused_markdown, review_to_json
    from patchbisect.maintain.reviewing import review_against

    project = load_project()
    try:
        found = review_against(project, base, mirror=mirror_of(project), head=head)
    except UsageError as error:
        if markdown:
            # A pull request shows what is wrong with it, too.
            sys.stdout.write(refused_markdown(base, error.message))
        raise
    if json:
        emit(review_to_json(found))
        return
    if markdown:
        sys.stdout.write(as_markdown(found))
        return
    workshop.table([(change.name, str(change.what), "; ".join(found.risks(change))) for change in found.changes])
    _show(found.to_be_told)
    say(f"started with it in {found.proof.run}" if found.proof else "no recorded start with this queue")


@task(
    help={
        "dir": "the folder of the new queue",
        "upstream": "SGLang's repository",
        "tag": "the pin's tag",
        "commit": "the pin's full commit id",
        "release": "the release that has the same code",
        "wheel-sha256": "the checksum of that release's wheel",
        "install": "what the workflow gives to pip (default: the commit that runs here)",
        "json": workshop.JSON,
    }
)
def init(
    ctx: invoke.Context,
    dir: str,
    upstream: str = "",
    tag: str = "",
    commit: str = "",
    release: str = "",
    wheel_sha256: str = "",
    install: str = "",
    json: bool = False,
) -> None:
    """Start a queue in a repository of your own: pin, settings, tasks, and what looks after it in pull requests.

    Files that are there stay.

    Example: invoke init ../my-sglang-patches
    """
    from patchbisect.maintain.starting import SGLANG, start_queue
    from patchbisect.model import Pin
    from patchbisect.patchqueue import format_pin, parse_pin

    pin = SGLANG
    if commit:
        url = upstream or SGLANG.upstream
        pin = Pin(upstream=url, tag=tag, commit=commit, release=release, wheel_sha256=wheel_sha256)
    parse_pin(format_pin(pin), filename="the pin")
    started = start_queue(Path(dir), pin=pin, install=install)
    if json:
        emit({"dir": dir, "written": started.written, "kept": started.kept, "notes": started.notes})
        return
    for path in started.written:
        console().print(f"+ {Path(dir) / path}", markup=False)
    for path in started.kept:
        console().print(f"= {Path(dir) / path} (was there)", markup=False)
    for note in started.notes:
        say(note)


TASKS = (
    lint,
    facts,
    review,
    init,
)
