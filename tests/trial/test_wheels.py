"""What stands between a point and a box's environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from packaging.markers import default_environment

from patchbisect.box import Environment, EnvironmentOrder, Installed
from patchbisect.box.failures import CannotEquip
from patchbisect.config import BoxConfig, OtherWheels
from patchbisect.errors import PointUnbuildable
from patchbisect.model import Outcome, Persistence, Verdict
from patchbisect.trial.running import _unless_other_wheels
from patchbisect.trial.wheels import BUILD_S, Fit, Wants, Wheels, fitted
from patchbisect.upstream import Need, Needs

MARKERS = {name: str(value) for name, value in default_environment().items()}


def box_with(**packages: str) -> Installed:
    named = {name.replace("_", "-"): version for name, version in packages.items()}
    return Installed(executable="/py", prefix="/venv", places=("/site",), packages=named, markers=MARKERS)


def wants(pin: Sequence[str], base: Sequence[str], **packages: str) -> Wants:
    needs = Needs(pin=tuple(map(Need.of, pin)), base=tuple(map(Need.of, base)))
    return Wants(needs=needs, packages={name.replace("_", "-"): version for name, version in packages.items()})


def gaps(wanted: Wants, has: Installed) -> list[str]:
    return [str(gap) for gap in fitted(wanted, has).gaps]


def test_what_the_base_words_otherwise_and_the_box_does_not_satisfy_is_lacking() -> None:
    wanted = wants(["a==1", "b==1", "c"], ["a==2", "b>=1", "c", "d==4"])
    assert gaps(wanted, box_with(a="1", b="1", c="9")) == ["a==2, the box has 1", "d==4, the box has none"]


def test_what_the_box_satisfies_needs_nothing_local_versions_and_pre_releases_included() -> None:
    wanted = wants(["torch==2.9.1", "b"], ["torch==2.9.1", "torch>=2.9", "b<4"])
    assert fitted(wanted, box_with(torch="2.9.1+cu128", b="3.0rc1")) == Fit()


def test_what_the_box_has_otherwise_than_even_the_pin_asks_is_its_owners_choice() -> None:
    """A torch of their own, a package that they live without, a kernel package under its newer name."""
    pin, base = ["torch==2.9.1", "xgrammar==0.1", "sgl-kernel==0.3.21"], ["torch==2.11.0", "xgrammar==0.2"]
    has = box_with(torch="2.13.0", a="1")
    assert fitted(wants(pin, [*base, "sglang-kernel==0.4.1"]), has) == Fit()
    order = fitted(wants([*pin, "a==1"], [*base, "a==2"]), has).order
    assert order is not None
    assert order.wanted == ("a==2",)
    assert order.held == ("torch==2.13.0",)
    assert order.without == ("sgl-kernel", "xgrammar")


def test_markers_are_those_of_the_box_and_an_extra_that_is_new_counts() -> None:
    elsewhere = "x==1; sys_platform == 'win32'"
    assert gaps(wants(["a==1"], ["a==1", elsewhere]), box_with(a="1")) == []
    assert gaps(wants(["a==1"], ["a[cu13]==1"]), box_with(a="1")) == ["a[cu13]==1, the box has 1"]


def test_a_points_own_packages_go_before_what_its_base_asks_for() -> None:
    wanted = wants(["a==1", "b"], ["a==2", "b"], a="1")
    assert fitted(wanted, box_with(a="1", b="1")) == Fit()
    order = fitted(wants(["a==1", "b"], ["a==2", "b"], a="3"), box_with(a="1", b="1")).order
    assert order is not None
    assert (order.sought, order.wanted) == (("a",), ("a==3", "b"))


def test_a_package_that_the_box_lives_without_can_be_chosen() -> None:
    order = fitted(wants(["a==1"], ["a==2"], a="3"), box_with(b="1")).order
    assert order is not None
    assert (order.sought, order.wanted, order.without) == (("a",), ("a==3",), ())


def test_a_renamed_package_is_one_and_a_box_may_have_it_under_both_names() -> None:
    pin, base = ["sgl-kernel==0.3.21"], ["sglang-kernel==0.4.1"]
    assert gaps(wants(pin, base), box_with(sgl_kernel="0.3.21")) == ["sglang-kernel==0.4.1, the box has 0.3.21"]
    assert gaps(wants(pin, base), box_with(sgl_kernel="0.3.21", sglang_kernel="0.4.1")) == []
    order = fitted(wants(pin, base, sglang_kernel="0.4.2"), box_with(sgl_kernel="0.3.21")).order
    assert order is not None
    assert order.wanted == ("sglang-kernel==0.4.2",)


def test_the_key_is_the_content() -> None:
    def key(wanted: Wants, has: Installed) -> str:
        order = fitted(wanted, has).order
        assert order is not None
        return order.key

    one = key(wants(["a==1"], ["a==2"]), box_with(a="1"))
    assert one == key(wants(["a>=1"], ["a==2"]), box_with(a="1"))
    assert one != key(wants(["a==1"], ["a==3"]), box_with(a="1"))
    assert one != key(wants(["a==1"], ["a==2"]), box_with(a="1", other="2"))


def test_content_says_what_differs_from_the_pin_whatever_the_box_has() -> None:
    assert wants(["a==1", "b"], ["a==2", "b"], c="5").content == {"a": "a==2", "c": "5"}
    assert wants(["a==1"], ["a==1"]).content == {}


class Builder:
    """A box that builds, or refuses to; ``asked`` are the orders that it got."""

    name = "rig"

    def __init__(self, refusal: str = "", there: Mapping[str, float] | None = None) -> None:
        self.refusal = refusal
        self.there = dict(there or {})
        self.asked: list[EnvironmentOrder] = []

    def installed(self) -> Installed:
        return box_with(a="1")

    def environments(self) -> tuple[Environment, ...]:
        return tuple(Environment(key, "/e", {}, (), seconds=s, size_gb=1.0) for key, s in self.there.items())

    def environment(self, order: EnvironmentOrder, *, progress: Callable[..., None]) -> Environment:
        self.asked.append(order)
        if self.refusal:
            raise CannotEquip(self.refusal, remedy="another index")
        progress({"detail": "a 2", "done": 1, "of": 1})
        return Environment(order.key, "/e/python", {"a": "2"}, order.wanted, seconds=30, size_gb=1.0, built=True)


def of(box: Builder, policy: OtherWheels = "build") -> Wheels:
    return Wheels(cast(Any, box), policy=policy)


OTHER = wants(["a==1"], ["a==2"])


@pytest.mark.parametrize("policy", ["refuse", "ignore"])
def test_a_box_that_may_not_build_refuses_what_it_lacks_and_says_how_to_allow_it(policy: OtherWheels) -> None:
    with pytest.raises(PointUnbuildable, match="needs a==2, the box has 1") as caught:
        of(Builder(), policy).fit(OTHER)
    assert "other-wheels: build" in caught.value.remedy
    assert "--set package:a=1" in caught.value.remedy


def test_what_an_environment_costs_until_it_is_there() -> None:
    wheels, lines = of(Builder(there={"f" * 16: 60.0})), list[str]()
    assert wheels.preparation_s(OTHER) == 60
    assert of(Builder()).preparation_s(OTHER) == BUILD_S
    found = wheels.ready(OTHER, say=lines.append)
    assert found is not None
    assert wheels.preparation_s(OTHER) == 0
    assert lines[0].endswith("a 2 (1 of 1)")
    assert "built in 30 s" in lines[-1]
    assert wheels.ready(wants(["a==1"], ["a==1"]), say=lines.append) is None


def test_what_pip_could_not_have_is_said_with_what_needs_it_and_is_not_tried_again() -> None:
    box = Builder(refusal="there is no wheel of a==2")
    wheels = of(box)
    for _ in range(2):
        with pytest.raises(CannotEquip, match="needs a==2, the box has 1, and cannot get it: there is no wheel"):
            wheels.ready(OTHER, say=lambda line: None)
    assert len(box.asked) == 1
    assert wheels.preparation_s(OTHER) == 0


def test_a_verdict_counts_only_with_the_wheels_that_were_asked_for() -> None:
    environment = Environment("k", "/e/python", {"Tiny_Dep": "2"}, (), seconds=1, size_gb=1)
    ready = Verdict(outcome=Outcome.READY)
    assert _unless_other_wheels(ready, {"packages": {"tiny-dep": "2"}}, environment) is ready
    assert _unless_other_wheels(ready, {"unknown": "dead"}, environment) is ready
    void = _unless_other_wheels(ready, {"packages": {"tiny-dep": "1"}}, environment)
    assert (void.outcome, void.persistence) == (Outcome.VOID, Persistence.PERMANENT)


def test_only_the_embedded_box_takes_every_base_as_it_is() -> None:
    assert BoxConfig(embedded=True).wheels_policy == "ignore"
    assert BoxConfig().wheels_policy == "refuse"
    assert BoxConfig(embedded=True, other_wheels="build").wheels_policy == "build"
