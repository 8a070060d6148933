from datetime import UTC, datetime

import pytest

from patchbisect.errors import UsageError
from patchbisect.records import collectable, moment, wanted


def test_collection_spares_the_new_the_named_and_the_held() -> None:
    def document(identifier: str, day: int, *, tags: tuple[str, ...] = ()) -> dict[str, object]:
        return {"id": identifier, "created": f"2026-11-{day:02d}T00:00:00+00:00", "tags": list(tags)}

    documents = [document("old", 1), document("named", 2, tags=("a",)), document("held", 3), document("young", 28)]
    documents += [document("old-but-newest", 4)]
    before = datetime(2026, 11, 20, tzinfo=UTC)
    assert collectable(documents, keep=1, before=before, held={"held"}) == ["old"]
    assert collectable(documents, keep=0, before=before, held={"held"}) == ["old", "old-but-newest"]
    assert collectable(documents, keep=9, before=before, held=set()) == []


def test_a_misspelt_outcome_names_the_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        wanted(outcome="oon")
    assert refused.value.remedy == "did you mean 'oom'?"


def test_a_moment_is_an_age_or_a_time() -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert moment("6h", now=now) == datetime(2026, 11, 29, 6, tzinfo=UTC)
    assert moment("2w", now=now) == datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert moment("2026-11-29", now=now) == datetime(2026, 11, 29, tzinfo=UTC)
    assert moment("2026-11-29T10:00+02:00") == datetime(2026, 11, 29, 8, tzinfo=UTC)
    with pytest.raises(UsageError, match="is no time"):
        moment("yesterday")
