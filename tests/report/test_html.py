import base64
import copy
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from patchbisect.records import Attachments, Store
from patchbisect.report import html, page
from patchbisect.report.sources import recorded
from patchbisect.report.words import BREAK
from tests.report import builder

ATTACKS = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</pre></style><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7*7 }}{% raw %}",
    "\x1b[31m\x00\x08",
)
ALLOWED = set(
    re.findall(
        r"\w+",
        """html head meta title style body a header main footer section nav p h1 h2 h3 ul ol li dl div dt dd
        pre code span small strong i br time details summary table thead tbody tr th td
        figure figcaption svg desc line rect path circle polyline text""",
    )
)


class Parsed(HTMLParser):
    """Every tag with its attributes, the ids, the links, the headings and the text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[int] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.all.append((tag, dict(attrs)))
        self.attributes |= {name for name, _ in attrs}
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name == "href" and value:
                self.links.append(value)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_data(self, data: str) -> None:
        if self.all and self.all[-1][0] != "style":
            self.text += data


@pytest.fixture
def finding(store: Store) -> dict[str, Any]:
    return builder.bisection(store)


def rendered(finding: dict[str, Any], store: Store) -> str:
    return html.rendered(page.of_finding(finding, store))


def hostile(finding: dict[str, Any], store: Store) -> dict[str, Any]:
    """Every text of the finding, and the culprit's log and patch, with every attack in it."""
    attack = " ".join(ATTACKS)

    def poisoned(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: poisoned(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [poisoned(inner, key) for inner in value]
        closed = {"run", "answer", "observation", "status", "outcome", "stage", "signature", "kind", "id"}
        return f"{value} {attack}" if isinstance(value, str) and key not in closed else value

    bad = finding["proof"]["culprit_bad"]["run"]
    made = store.load(bad)
    deciding = {**made.verdict["deciding"], "text": attack}
    patch = "0005-print-rest"
    store.remove(bad)
    poisoned_record = made.model_copy(
        update={
            "verdict": {**made.verdict, "deciding": deciding, "why": attack},
            "machine": {"driver": attack},
            "by_hand": attack,
        }
    )

    log = builder.case("cpu/04-unbound").replace(b"UnboundLocalError", attack.encode())
    store.save(poisoned_record, Attachments(log=log, patches={patch: builder.patch_text(patch, code=attack).encode()}))
    return poisoned(copy.deepcopy(finding))


def test_text_from_logs_and_patches_stays_text(finding: dict[str, Any], store: Store) -> None:
    parsed = Parsed(rendered(hostile(finding, store), store))
    assert set(parsed.tags) <= ALLOWED
    assert not {name for name in parsed.attributes if name.startswith("on") or name in ("style", "src", "xlink:href")}
    assert all(link.startswith("#") for link in parsed.links)
    assert parsed.text.count("<script>document.title='owned'</script>") > 5
    assert "{{ 7*7 }}" in parsed.text
    assert "\x1b" not in parsed.text
    assert "\x00" not in parsed.text


def test_the_policy_allows_this_style_sheet_and_nothing_else(finding: dict[str, Any], store: Store) -> None:
    text = rendered(finding, store)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert style is not None
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    rules = policy[1].replace("&#39;", "'")
    assert rules == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_the_answer_its_proof_and_how_to_see_it_again_come_first(finding: dict[str, Any], store: Store) -> None:
    text = Parsed(rendered(finding, store)).text
    places = [
        text.index(words)
        for words in (
            "add 0005-print-rest",
            "UnboundLocalError: cannot access local variable 'rest_memory'",
            "with the culprit (its own point): must fail",
            f"invoke launch --point run:{finding['proof']['culprit_bad']['run']}",
            "Point k is point 0 with",
        )
    ]
    assert places == sorted(places)


def test_links_lead_somewhere_and_ids_are_unique(finding: dict[str, Any], store: Store) -> None:
    finding["trials"].append(finding["trials"][0])
    finding["proof"]["alone_bad"] = {"status": "confirmed", "run": "20200101-000000-dead"}
    parsed = Parsed(rendered(finding, store))
    assert len(parsed.ids) == len(set(parsed.ids))
    assert parsed.links
    assert {link.removeprefix("#") for link in parsed.links} <= set(parsed.ids)


def test_basics_for_keyboard_and_screen_reader_hold(finding: dict[str, Any], store: Store) -> None:
    parsed = Parsed(rendered(finding, store))
    assert ("html", {"lang": "en"}) in parsed.all
    assert parsed.tags["main"] == parsed.tags["h1"] == 1
    levels = parsed.headings
    assert all(after <= before + 1 for before, after in zip([1, *levels], levels, strict=False))
    pictures = [attributes for tag, attributes in parsed.all if tag == "svg" and "aria-hidden" not in attributes]
    assert pictures
    assert all(a.get("role") == "img" and a.get("aria-labelledby") for a in pictures)
    labelled = {part for a in pictures for part in (a["aria-labelledby"] or "").split()}
    assert labelled <= set(parsed.ids)
    assert all(a.get("scope") == "col" for tag, a in parsed.all if tag == "th")
    scrolling = [a for tag, a in parsed.all if a.get("class") == "scroll"]
    assert all(a.get("tabindex") == "0" and a.get("aria-label") for a in scrolling)


def test_every_tag_is_closed_where_it_was_opened(finding: dict[str, Any], store: Store) -> None:
    class Nesting(HTMLParser):
        stack: list[str]

        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "br"):
                self.stack.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.stack.pop() == tag

    parser = Nesting()
    parser.stack = []
    parser.feed(rendered(hostile(finding, store), store))
    assert parser.stack == []


def test_a_secret_that_only_the_server_knew_is_not_shown(finding: dict[str, Any], store: Store) -> None:
    bad = finding["proof"]["culprit_bad"]["run"]
    made = store.load(bad)
    store.remove(bad)
    log = builder.case("cpu/04-unbound").replace(
        b"UnboundLocalError: cannot", b"loading with hf_abcdefghijklmnopqrstuv api_key='letmein99' cannot"
    )
    store.save(made, Attachments(log=log))
    text = rendered(finding, store)
    assert "hf_abcdefghijklmnopqrstuv" not in text
    assert "letmein99" not in text
    assert "loading with ***" in text


def test_pictures_are_there(finding: dict[str, Any], store: Store) -> None:
    text = rendered(finding, store)
    for title in ("What was left after each launch", "Where the memory of each rank went"):
        assert f"<figcaption>{title}</figcaption>" in text
    assert "weights 0.53 GiB" in text


def test_the_two_of_a_pair_differ_in_colour_and_in_style(finding: dict[str, Any], store: Store) -> None:
    for claim in ("culprit_bad", "parent_good"):
        made = store.load(finding["proof"][claim]["run"])
        log = store.log(made.id)
        store.remove(made.id)
        samples = [{"t": 1.8e9 + t, "gpus": [[0, 1.0 * t, 1], [1, 2.0 * t, 1]]} for t in range(3)]
        store.save(made, Attachments(log=log, samples=samples))
    picture = page.of_finding(finding, store).gpu
    assert picture is not None
    assert [(path.title, path.css) for path in picture.paths] == [
        ("culprit, fullest of 2 GPUs", "band line-1"),
        ("culprit, fullest of 2 GPUs", "series line-1"),
        ("parent, fullest of 2 GPUs", "band line-0 dashed"),
        ("parent, fullest of 2 GPUs", "series line-0 dashed"),
    ]


def test_a_huge_bisection_stays_under_a_megabyte(store: Store) -> None:
    finding = builder.bisection(store)
    finding["trials"] = finding["trials"] * 200
    finding["timeline"] += [{**finding["timeline"][0], "position": k, "title": "x" * 5000} for k in range(9, 1001)]
    bad = finding["proof"]["culprit_bad"]["run"]
    made = store.load(bad)
    store.remove(bad)

    name = "0005-print-rest"
    long_patch = builder.patch_text(name) + "+y\n" * 50_000
    log = b"\n".join([b"z" * 60_000] * 120)
    store.save(made, Attachments(log=log, patches={name: long_patch.encode()}))
    assert len(rendered(finding, store).encode()) < 1_000_000


@pytest.mark.parametrize("answer", ["set", "none", "inconclusive", "endpoint-failed"])
def test_an_answer_without_a_culprit_has_a_page_too(finding: dict[str, Any], store: Store, answer: str) -> None:
    candidates = finding["timeline"][3:6] if answer == "set" else []
    finding |= {"answer": answer, "culprit": None, "proof": {}, "reproduce": {}, "candidates": candidates}
    text = Parsed(rendered(finding, store)).text
    assert page.ANSWERS[answer] in text
    assert all(candidate["title"] in text for candidate in candidates)


def test_changes_that_break_it_only_together_are_all_named(finding: dict[str, Any], store: Store) -> None:
    both, other = finding["timeline"][2:4], finding["timeline"][6:7]
    finding |= {"answer": "set", "culprit": None, "candidates": both, "together": True, "others": [other]}
    finding["trials"][0] |= {"reused": True, "run": ""}
    parsed = Parsed(rendered(finding, store))
    assert BREAK.found_several in parsed.text
    named = f"{both[0]['title']}, with {both[1]['title']}"
    assert f"{named}; independently of that, {other[0]['title']}" in parsed.text
    assert BREAK.found_set in Parsed(rendered({**finding, "others": []}, store)).text
    assert "bad end, marked" in parsed.text
    assert "run-" not in parsed.ids


def test_two_culprits_are_both_in_the_headline(finding: dict[str, Any], store: Store) -> None:
    other = finding["timeline"][6]
    made = page.of_finding({**finding, "others": [[other]]}, store)
    assert made.answer == BREAK.found_several
    assert made.headline == f"{finding['culprit']['title']}; independently of that, {other['title']}"
    assert [point.position for point in made.points if point.culprit] == [finding["culprit"]["position"], 7]


def test_a_search_for_the_fix_speaks_of_a_fix(finding: dict[str, Any], store: Store) -> None:
    for trial in finding["trials"]:
        trial["observation"] = {"good": "bad", "bad": "good"}[trial["observation"]]
    finding |= {"fix": True}
    made = page.of_finding(finding, store)
    parsed = Parsed(html.rendered(made))
    assert made.tone == "good"
    assert made.narrowing is not None
    assert [label.text for label in made.narrowing.labels if label.text.endswith(" left")][-1] == "1 left"
    for words in ("Fix found", "with the fix (its own point): must pass", "← fix", "Fix again", "clean (older, fails)"):
        assert words.lower() in parsed.text.lower()
    assert "culprit" not in parsed.text.lower()


def test_what_is_known_beside_the_answer_is_told(finding: dict[str, Any], store: Store) -> None:
    within = {**finding["trials"][0], "run": "r2", "point": "clean with 1 of 3 hunks"}
    hunk = {
        **{"culprit": {"title": "hunk 2 of x.py"}, "candidates": [], "reason": "it alone breaks it"},
        "trials": [within],
    }
    differences = [{"field": "driver", "then": "570", "now": "575"}]
    finding |= {
        "inside": hunk,
        "baseline": {"run": "r1", "created": "2026-11-28", "differences": differences},
        "reused": 3,
    }
    text = Parsed(rendered(finding, store)).text
    assert "hunk 2 of x.py: it alone breaks it" in text
    assert "clean with 1 of 3 hunks" in text
    assert "started in run r1 of 2026-11-28; since then: driver: 570 -> 575" in text
    assert "6 launches and 3 known before" in text


def test_records_that_were_collected_are_left_out_not_missed(finding: dict[str, Any], store: Store) -> None:
    for identifier in store.ids():
        store.remove(identifier)
    text = Parsed(rendered(finding, store)).text
    assert "add 0005-print-rest" in text
    assert "Deciding lines" not in text


@pytest.mark.parametrize("case", ["cpu/02-mem-too-low", "cpu/11-tp2", "logs/o16_runtime_oom_dp", "cpu/08-unknown-flag"])
def test_a_run_has_a_page(store: Store, case: str) -> None:
    from patchbisect.startup import classify
    from patchbisect.wire import verdict_to_json

    log = builder.case(case)
    made = builder.save(store, builder.record("20261129-180000-aaaa", verdict=verdict_to_json(classify(log))), log=log)
    text = html.rendered(page.of_run(recorded(store, made.id), store))
    assert set(Parsed(text).tags) <= ALLOWED
    assert "invoke launch --point run:20261129-180000-aaaa" in text


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ("ink", "paper"),
        ("soft", "paper"),
        ("soft", "panel"),
        ("link", "paper"),
        ("bad", "panel"),
        *((word, f"{word}-paper") for word in ("good", "bad", "skip")),
    ],
)
def test_words_can_be_read_on_their_ground(theme: str, ink: str, paper: str) -> None:
    """WCAG 2.1 AA asks for 4.5."""
    css = resources.files("patchbisect.report").joinpath("page.css").read_text()
    light, _, rest = css.partition("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    if theme == "dark":
        colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", rest.partition("} }")[0]))
    assert _contrast(colours[ink], colours[paper]) >= 4.5
