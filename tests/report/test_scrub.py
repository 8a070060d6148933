import pytest

from patchbisect.report.scrub import Scrubber, without_secrets

SCRUBBER = Scrubber(
    values=["s3cr3t-value"], names=["WEIRD"], hosts=["rig7.corp.example", "rig7", "sglang"], users=["ada"]
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("token s3cr3t-value here", "token *** here"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=***"),
        ("loading with hf_abcdefghijklmnopqrst", "loading with ***"),
        ("api_key='abc', port=30000", "api_key='***', port=30000"),
        ("'api_key': 'abc'", "'api_key': '***'"),
        ("--api-key abc --port 1", "--api-key *** --port 1"),
        ("WEIRD=abc", "WEIRD=***"),
        ("api_key=None", "api_key=None"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("https://ada:pw123456@host/x", "https://***@host/x"),
    ],
)
def test_secrets_are_masked_wherever_they_stand(text: str, cleaned: str) -> None:
    assert without_secrets(text, values=["s3cr3t-value"], names=["WEIRD"]) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "max_total_num_tokens=4096, chunked_prefill_size=8192",
        "#tokens: 4096, K size: 0.01 GB",
        "skip_tokenizer_init=True, tokenizer_path='/models/x'",
        "the token is not valid",
        'File "/srv/sglang/srt/auth.py", line 3',
        "speculative_num_draft_tokens=4",
    ],
)
def test_what_only_sounds_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_hosts_addresses_and_users_get_lasting_pseudonyms() -> None:
    scrubber = Scrubber(hosts=["rig7.corp.example"], users=["ada"])
    first = scrubber.text("ada@rig7.corp.example 10.1.2.3 /home/ada/x")
    assert first == "user@host-1 address-1 /home/user/x"
    assert scrubber.text("10.9.9.9 then 10.1.2.3") == "address-2 then address-1"


@pytest.mark.parametrize("text", ["127.0.0.1:31000", "0.0.0.0", "/srv/sglang/srt", "torch 2.9.1", "999.1.1.1"])
def test_what_names_nobody_stays(text: str) -> None:
    assert SCRUBBER.text(text) == text


def test_a_document_keeps_its_keys_and_its_versions() -> None:
    document = {
        "env": {"HF_TOKEN": "x", "A": "rig7"},
        "versions": {"nvidia-cublas": "12.9.1.4"},
        "n": 3,
        "list": ["10.1.2.3"],
    }
    assert SCRUBBER.document(document) == {
        "env": {"HF_TOKEN": "***", "A": "host-1"},
        "versions": {"nvidia-cublas": "12.9.1.4"},
        "n": 3,
        "list": ["address-1"],
    }


def test_bytes_that_are_no_text_survive() -> None:
    assert SCRUBBER.bytes(b"\xff\xfe s3cr3t-value \x00") == b"\xff\xfe *** \x00"
