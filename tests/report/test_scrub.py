import pytest

from patchbisect.report.masking import without_secrets
from patchbisect.report.scrub import Scrubber

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
        ("see ghp_0123456789abcdefghij and AKIA0123456789ABCDEF", "see *** and ***"),
        ("jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl end", "jwt *** end"),
        ("token key=abc", "token key=***"),
        ("password='two words', port=1", "password='***', port=1"),
        ('{"api_key":"abc","port":1}', '{"api_key":"***","port":1}'),
        ('"{\\"api_key\\": \\"abc\\"}"', '"{\\"api_key\\": \\"***\\"}"'),
        ("['--api-key', 'abc', '--port', '1']", "['--api-key', '***', '--port', '1']"),
        ("--api-key 'two words' --port 1", "--api-key '***' --port 1"),
        ("HF_TOKEN_FILE=/run/x client_secret: y", "HF_TOKEN_FILE=*** client_secret: ***"),
        ("_hf_token=abc", "_hf_token=***"),
        ("#token: hf-not-a-number", "#token: ***"),
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
        "Prefill batch, #new-seq: 1, #new-token: 256, #cached-token: 0, token usage: 0.00",
        "task-0123456789abcdef0123 disk-0123456789abcdef0123",
    ],
)
def test_what_only_sounds_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_hosts_addresses_and_users_get_lasting_pseudonyms() -> None:
    scrubber = Scrubber(hosts=["rig7.corp.example"], users=["ada"])
    first = scrubber.text("ada@rig7.corp.example 10.1.2.3 /home/ada/x")
    assert first == "user@host-1 address-1 /home/user/x"
    assert scrubber.text("10.9.9.9 then 10.1.2.3") == "address-2 then address-1"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("10.1.2.3:31000", "address-1:31000"),
        ("(10.1.2.3,", "(address-1,"),
        ("x=10.1.2.3 1.2.3.4.5 v1.2.3.4 1234.1.2.3", "x=10.1.2.3 1.2.3.4.5 v1.2.3.4 1234.1.2.3"),
    ],
)
def test_what_is_an_address(text: str, cleaned: str) -> None:
    assert SCRUBBER.knowing().text(text) == cleaned


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
    assert SCRUBBER.log(b"\xff\xfe s3cr3t-value \x00") == b"\xff\xfe *** \x00"
