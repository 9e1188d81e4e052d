"""KL is measured against what TRL measures it against: the model that training began with."""

import copy

import pytest
import torch

peft = pytest.importorskip("peft")


@pytest.fixture
def trained_lora(tiny_llama):
    """A PeftModel whose adapter is not zero any more, as after an earlier training."""
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(tiny_llama, config)
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.3)
    return model


def kls(trainer, resume=None):
    """The KL of each step."""
    trainer.train(resume_from_checkpoint=resume)
    return [entry["kl"] for entry in trainer.state.log_history if "kl" in entry]


@pytest.fixture
def settings():
    return {"beta": 0.5, "learning_rate": 0.0, "max_steps": 1}


def test_an_adapter_that_was_trained_before_is_its_own_reference(
    make_trainer, trained_lora, settings
):
    """As in TRL, which copies it."""
    trainer = make_trainer(model=trained_lora, **settings)
    assert trainer.ref_model is None and "ref" in trainer.model.peft_config
    assert kls(trainer)[0] == pytest.approx(0.0, abs=1e-6)


def test_the_reference_stays_and_the_adapter_learns(make_trainer, trained_lora):
    trainer = make_trainer(model=trained_lora, beta=0.5, max_steps=3, learning_rate=5e-2)

    def adapter(name):
        parameters = trainer.model.named_parameters()
        return {n.replace(name, "_"): p.detach().clone() for n, p in parameters if name in n}

    before = adapter(".ref.")
    trainer.train()
    assert trainer.model.active_adapter == "default"
    after, trained = adapter(".ref."), adapter(".default.")
    assert before and all(torch.equal(before[n], after[n]) for n in before)
    assert any(not torch.equal(before[n], trained[n]) for n in before)
    assert trainer.state.log_history[-2]["kl"] > 1e-4


def test_a_new_adapter_is_measured_against_the_model_without_it(make_trainer, tiny_llama, settings):
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    trainer = make_trainer(model=tiny_llama, peft_config=config, **settings)
    assert "ref" not in trainer.model.peft_config
    # init_lora_weights=False makes the adapter random: it differs from the model below it.
    assert kls(trainer)[0] > 1e-3


def test_a_whole_model_is_measured_against_its_directory(
    make_trainer, tiny_llama, settings, tmp_path
):
    tiny_llama.save_pretrained(tmp_path / "model")
    trainer = make_trainer(model=str(tmp_path / "model"), **settings)
    with torch.no_grad():
        trainer.model.lm_head.weight.mul_(1.5)
    assert kls(trainer)[0] > 1e-3


def test_a_model_that_was_loaded_from_nowhere_has_no_reference(make_trainer, tiny_llama):
    with pytest.raises(ValueError, match="has no directory"):
        make_trainer(model=tiny_llama, beta=0.1)


RESUMED = {
    "beta": 0.5, "max_steps": 4, "learning_rate": 5e-2, "save_strategy": "steps", "save_steps": 2
}  # fmt: skip


def test_resuming_keeps_an_adapters_reference(make_trainer, trained_lora, tmp_path):
    def run(resume=None):
        return kls(make_trainer(model=copy.deepcopy(trained_lora), **RESUMED), resume)

    whole = run()
    resumed = run(str(tmp_path / "out" / "checkpoint-2"))
    assert resumed == pytest.approx(whole, rel=1e-6)
