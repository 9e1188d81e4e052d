"""What a user can do wrong ends in one sentence; `--debug` shows the traceback."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentsgym.envs import ConfigError
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.runs.models import load_pretrained
from agentsgym.types.text import visible

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202eright\x9b31m"


@pytest.fixture
def model(tmp_path, tiny_llama, chat_tokenizer):
    folder = tmp_path / "damaged"
    tiny_llama.save_pretrained(folder)
    chat_tokenizer.save_pretrained(folder)
    return folder


def edit(folder: Path, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def pickle_only(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def not_finite(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda at: (at / "config.json").unlink(), "config.json is missing"),
        (lambda at: cut(at / "config.json"), "config.json: "),
        (lambda at: (at / "config.json").write_text("{}"), "model_type"),
        (lambda at: (at / "model.safetensors").unlink(), "no weights in"),
        (lambda at: cut(at / "model.safetensors"), "model.safetensors: .*not fully covered"),
        (lambda at: (at / "tokenizer.json").write_text("[]"), "tokenizer.json: no JSON object"),
        (lambda at: cut(at / "tokenizer_config.json"), "tokenizer_config.json: "),
        (lambda at: edit(at, hidden_size=16), "another shape than config.json"),
        (lambda at: edit(at, num_hidden_layers=7), "lack .* weights of a LlamaForCausalLM"),
        (lambda at: edit(at, model_type="nope"), "model type `nope`"),
        (lambda at: edit(at, vocab_size="many"), "vocab_size"),
        (pickle_only, "pickled ones are not read"),
        (not_finite, "'model.norm.weight' are not finite"),
    ],
)
def test_a_damaged_model_directory_is_one_sentence(model, damage, words):
    damage(model)
    with pytest.raises(ConfigError, match=rf"damaged' cannot be loaded: .*{words}") as caught:
        load_pretrained(model)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["evil/kernel", "kernels-community/flash-attn2", "evil/x@main:y"])
def test_a_model_that_names_attention_of_the_hub_is_refused(model, name):
    with pytest.raises(ConfigError, match=rf"names the attention '{name}', which is code"):
        load_pretrained(edit(model, attn_implementation=name))


def test_an_engine_runs_no_code_of_a_model_even_where_somebody_says_yes(model, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    mark = model / "ran"
    (model / "theirs.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    code = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"}
    with pytest.raises(ValueError, match="trust_remote_code"):
        EmbeddedEngine.from_pretrained(str(edit(model, model_type="own", auto_map=code)))
    assert not mark.exists()


def test_a_model_without_tokenizer_is_one_sentence(model):
    for file in model.glob("*token*"):
        file.unlink()
    with pytest.raises(ConfigError, match="it has no tokenizer"):
        load_pretrained(model)


def test_a_tokenizer_of_another_model_is_one_sentence(model, tiny_llama, chat_tokenizer):
    rows = tiny_llama.get_input_embeddings().weight.shape[0]
    tokenizer = load_pretrained(model).tokenizer
    tokenizer.add_tokens([f"new{i}" for i in range(rows + 1 - len(tokenizer))])
    tokenizer.save_pretrained(model)
    with pytest.raises(ConfigError, match=f"its tokenizer has {rows + 1} tokens"):
        load_pretrained(model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"env: \xe9", "run.yaml is not YAML: .*position"),
        (b"env: E\nseed: 2020-13-45", "run.yaml is not YAML: month must be"),
        (b"[" * 3000, "run.yaml is nested too deeply"),
        (b"env: E\ntrain: &a\n  x: *a", "is nested too deeply or too large"),
        (b"env: E\ntrain: 5", "train .*5"),
        (b"env: E\nenv_config: [1]", r"env_config .*\[1\]"),
        (b"env: E\nmax_seconds: .nan", "max_seconds is nan; a number must be finite"),
        (b"env: E\nenv_config: {a: [1, -.inf]}", "env_config.a.1 is -inf"),
        (b"env: E\ntrain: {beta: .nan}", "train.beta is nan"),
        (b"env: E\nseed: 4294967296", "seed .*4294967296"),
        (b"env: E\nseed: true", "seed .*True"),
        (b"env: E\neval: {rollouts: '8'}", "eval.rollouts .*'8'"),
    ],
)  # fmt: skip
def test_a_bad_run_file_is_one_sentence(invoke, tmp_path, text, message):
    path = tmp_path / "run.yaml"
    path.write_bytes(text)
    result = invoke("train", str(path))
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr) and len(result.stderr.splitlines()) == 1


def test_a_run_file_may_be_utf_16(tmp_path):
    from agentsgym.runs import load_config

    (tmp_path / "run.yaml").write_bytes("env: E\ndescription: ü".encode("utf-16"))
    assert load_config(str(tmp_path / "run.yaml")).description == "ü"


@pytest.mark.parametrize("where", ["before", "after", "environment"])
def test_debug_shows_the_traceback(invoke, monkeypatch, where):
    def broken(*_):
        raise LookupError("nobody\x1b[2J expected this")

    monkeypatch.setattr("agentsgym.cli.envs.find_spec", broken)
    plain = invoke("envs")
    assert plain.exit_code == 1 and len(plain.stderr.splitlines()) == 1
    assert plain.stderr.startswith(r"error: unexpected LookupError: nobody\x1b[2J expected this (")
    assert "--debug shows the traceback" in plain.stderr
    if where == "environment":
        monkeypatch.setenv("AGENTSGYM_DEBUG", "1")
    arguments = {"before": ("--debug", "envs"), "after": ("envs", "--debug")}
    result = invoke(*arguments.get(where, ("envs",)))
    assert result.exit_code == 1 and "Traceback (most recent call last)" in result.stderr
    assert "\x1b[2J" not in result.stderr


def test_terminal_escapes_are_shown_and_not_run():
    assert visible(ESCAPES) == r"\x1b]0;owned\x07\x1b[2J\u202eright\x9b31m"
    assert visible("two\n\tlines ü → 😀") == "two\n\tlines ü → 😀"
    assert visible("\ud800").encode() == rb"\ud800"


def test_no_command_prints_foreign_escapes(invoke, tmp_path, plain_tokenizer):
    from agentsgym import ScriptedAgent
    from agentsgym.runs.files import RolloutWriter
    from helpers import CountdownEnv

    agent = ScriptedAgent([f":warning: {ESCAPES}", "b"])
    rollouts = CountdownEnv(plain_tokenizer).run_trial([{}], agent, num_rollouts=2).rollouts
    RolloutWriter(tmp_path)(rollouts, {"phase": "train", "step": 0, "advantages": None})
    shown = invoke("credit", str(tmp_path)).stdout
    assert ":warning:" in shown and r"\x1b]0;owned" in shown
    refused = invoke("eval", f"agent:{ESCAPES}", "--env", "TwentyQuestions").stderr
    assert r"\x1b" in refused
    for text in (shown, refused):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)


def without_the_train_extra(folder, *arguments):
    """Run a command where no path holds the packages of the extra."""
    code = (
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "find, gone = PathFinder.find_spec, ('torch', 'trl', 'accelerate', 'peft')\n"
        "PathFinder.find_spec = classmethod(\n"
        "    lambda _, name, *more: None if name.split('.')[0] in gone else find(name, *more)\n"
        ")\n"
        f"sys.argv = ['agentsgym', *{arguments!r}]\n"
        "from agentsgym.cli import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_a_missing_train_extra_is_named_with_its_command(tmp_path):
    result = without_the_train_extra(tmp_path, "train", "quickstart")
    assert result.returncode == 2, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: the extra 'train' is not installed; install it with: pip ")
    assert last.endswith("[train]'") and not os.listdir(tmp_path)


def test_a_path_that_cannot_be_is_one_sentence(invoke, workplace):
    result = invoke("train", "toy.yaml", "--output", "toy.yaml/run")
    assert result.exit_code == 1 and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: toy.yaml/run: not a directory")
