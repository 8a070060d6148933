import pytest

from patchbisect.redact import is_secret, masked_url, redacted, split_secrets


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


def test_a_password_in_a_url_is_secret_whatever_the_name() -> None:
    values = {"https_proxy": "http://ada:s3cret@proxy:1", "HOME": "/home/ada", "no_proxy": "http://proxy"}
    assert split_secrets(values) == (
        {"HOME": "/home/ada", "no_proxy": "http://proxy"},
        {"https_proxy": values["https_proxy"]},
    )
    assert masked_url(values["https_proxy"]) == "http://ada:***@proxy:1"
