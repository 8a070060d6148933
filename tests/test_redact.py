import pytest

from patchbisect.redact import is_secret, redacted, split_secrets


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "api-key", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "admin-api-key", "X_AUTH"]
)
def test_names_that_look_secret_are(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["max-total-tokens", "skip-tokenizer-init", "tokenizer-path", "PATH", "KEYBOARD", "num-reserved-decode-tokens"],
)
def test_names_that_only_sound_like_it_are_not(name: str) -> None:
    assert not is_secret(name)


def test_the_settings_can_name_more() -> None:
    assert is_secret("WEIRD_NAME", more=("weird_name",))
    assert split_secrets({"A": "1", "HF_TOKEN": "hf_x"}) == ({"A": "1"}, {"HF_TOKEN": "hf_x"})


def test_longer_secrets_are_masked_first_and_short_ones_left_alone() -> None:
    assert redacted(b"see hf_abcdefgh and hf_abcdef, 1", ["hf_abcdef", "hf_abcdefgh", "1"]) == b"see *** and ***, 1"
