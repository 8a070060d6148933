import shlex
import subprocess
from pathlib import Path

from patchbisect.command import arguments, by_hand, masked, secret_values


def test_flags_become_arguments_in_their_order() -> None:
    flags = {"model-path": "{tiny-model}", "trust": True, "off": False, "tp-size": 2, "lora": ("a", "b")}
    assert arguments(flags, variables={"tiny-model": "/m"}) == (
        *("--model-path", "/m"),
        "--trust",
        *("--tp-size", "2"),
        *("--lora", "a", "b"),
    )


def test_unknown_braces_are_left_alone() -> None:
    assert arguments({"json": '{"a": 1}'}, variables={"a": "x"}) == ("--json", '{"a": 1}')


def test_secret_flags_are_masked_in_both_forms() -> None:
    argv = ("python", "--api-key", "sk-12345678", "--admin-api-key=abcdefgh", "--port", "1")
    assert masked(argv) == ("python", "--api-key", "***", "--admin-api-key=***", "--port", "1")
    assert secret_values(argv) == ("sk-12345678", "abcdefgh")


def test_a_bare_secret_flag_hides_nothing_else() -> None:
    assert masked(("--api-key", "--port", "1")) == ("--api-key", "--port", "1")


def test_a_home_in_the_line_by_hand_is_left_to_the_shell(tmp_path: Path) -> None:
    program = tmp_path / "my py" / "python"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf \'%s\\n\' "$PYTHONPATH" "$0" "$1"\n')
    program.chmod(0o755)
    line = by_hand(("~/my py/python", "~/x"), env={}, secret_env=(), pythonpath=("/t", "~/more", "~x y/z"))
    done = subprocess.run(["sh", "-c", line], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"/t:{tmp_path}/more:~x y/z", str(program), "~/x"]


def test_the_line_by_hand_survives_a_shell_and_names_secrets_only() -> None:
    line = by_hand(
        ("python", "-m", "x", "--api-key", "sk-12345678", "--note", "a b$(c)"),
        env={"A": "x y"},
        secret_env=["HF_TOKEN"],
        pythonpath=["/t/python", "/s"],
    )
    assert "sk-12345678" not in line
    assert 'HF_TOKEN="$HF_TOKEN"' in line
    words = shlex.split(line)
    assert words[0] == "A=x y"
    assert "PYTHONPATH=/t/python:/s" in words
    assert words[-1] == "a b$(c)"
