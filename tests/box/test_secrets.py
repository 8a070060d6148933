"""Secret values are starred out wherever they are shown, also at the edge of a chunk."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from patchbisect.box.secrets import Redactor, is_secret, masked_argv, masked_env, secret_values
from patchbisect.redact import MASK


def test_names_that_hold_secrets_and_names_that_only_sound_so() -> None:
    for name in ("HF_TOKEN", "OPENAI_API_KEY", "--api-key", "--admin-api-key", "DB_PASSWORD", "--ssl-keyfile-password"):
        assert is_secret(name), name
    for name in ("--tokenizer-path", "--max-total-tokens", "--skip-tokenizer-init", "--chunked-prefill-size", "PATH"):
        assert not is_secret(name), name
    assert is_secret("--my-thing", also=("my-thing",))


def test_a_command_line_is_masked_in_both_spellings() -> None:
    argv = ["python", "--api-key", "abcdef", "--api-key=abcdef", "--port", "1", "--api-key"]
    assert masked_argv(argv) == ["python", "--api-key", MASK, f"--api-key={MASK}", "--port", "1", "--api-key"]
    assert secret_values(argv, {"HF_TOKEN": "hf_123456", "A": "plain-value"}) == ("hf_123456", "abcdef", "abcdef")


def test_a_password_in_a_url_is_masked() -> None:
    shown = masked_env({"PROXY": "http://ada:swordfish@proxy:80/x"})
    assert shown == {"PROXY": f"http://ada:{MASK}@proxy:80/x"}


def test_a_short_value_does_not_destroy_the_log() -> None:
    assert Redactor(["8"]).feed(b"8 GPUs") == b"8 GPUs"


@given(
    text=st.lists(st.sampled_from(["a", "ab", "swordfish", "swordfis", "h", "\n", "trombone"]), max_size=30),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)
def test_however_a_log_is_cut_the_result_is_that_of_the_whole(text: list[str], cuts: list[int]) -> None:
    secrets = ["swordfish", "trombone"]
    whole = "".join(text).encode()
    wanted = whole
    for secret in secrets:
        wanted = wanted.replace(secret.encode(), b"*" * len(secret))
    redactor = Redactor(secrets)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    shown = b"".join(redactor.feed(whole[a:b]) for a, b in itertools.pairwise(places))
    assert shown + redactor.flush() == wanted
    assert len(wanted) == len(whole), "offsets must stay true"
