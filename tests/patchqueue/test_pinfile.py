import pytest

from patchbisect.model import Pin
from patchbisect.patchqueue import PatchFault, format_pin, parse_pin

COMMIT = "bbe9c7eeb520b0a67e92d133dfc137a3688dc7f2"
GOOD = f"""\
# comment
upstream = "https://example.org/sglang.git"
tag = "v0.5.9"
commit = "{COMMIT}"
release = "0.5.9"
wheel_sha256 = "{"a" * 64}"
"""


def fault_of(text):
    with pytest.raises(PatchFault) as caught:
        parse_pin(text.encode() if isinstance(text, str) else text, filename="patches/pin.toml")
    return caught.value.fault


def test_reading_and_writing():
    pin = parse_pin(GOOD.encode(), filename="pin.toml")
    assert pin == Pin("https://example.org/sglang.git", COMMIT, "v0.5.9", "0.5.9", "a" * 64)
    assert parse_pin(format_pin(pin), filename="pin.toml") == pin


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("commit =", "comit ="), 4, "unknown key 'comit' (did you mean commit?)"),
        (("tag =", "[tag]\nx ="), 3, "tag must be a string, not dict"),
        (('"v0.5.9"', "059"), 3, "is not TOML"),
        (('"v0.5.9"', "5"), 3, "tag must be a string, not int"),
        ((COMMIT, COMMIT[:12]), 4, "full commit id, not 'bbe9c7eeb520'"),
        ((COMMIT, COMMIT.upper()), 4, "full commit id"),
        (("a" * 64, "a" * 63), 6, "64 hexadecimal digits"),
        (('release = "0.5.9"\n', ""), 0, "belong together"),
        ((f'commit = "{COMMIT}"\n', ""), 0, "commit must be the full commit id, not ''"),
        (('upstream = "https://example.org/sglang.git"\n', ""), 0, "has no upstream"),
        (("https://example.org", "--upload-pack=x "), 2, "cannot be right"),
        (("# comment", "upstream"), 1, "is not TOML"),
    ],
)
def test_faults(change, line, said):
    assert change[0] in GOOD
    fault = fault_of(GOOD.replace(*change))
    assert said in fault.message
    assert fault.line == line
    assert fault.remedy


def test_bytes_that_are_not_utf8():
    assert fault_of(b'tag = "x"\nupstream = "\xff"\n').line == 2
