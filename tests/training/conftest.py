"""A trainer on toy environments, small enough to step many times in a test."""

import copy

import pytest

from agentsgym import register
from helpers import CountdownEnv, DigitEnv


class Played(list):
    """A rollout sink that keeps what it receives: (info, rollouts)."""

    def __call__(self, rollouts, info):
        self.append((info, rollouts))

    def steps(self, phase="train"):
        """Step → its rollouts."""
        return {info["step"]: rollouts for info, rollouts in self if info["phase"] == phase}

    def rollouts(self, phase="train"):
        """All rollouts of the phase."""
        return [r for info, rollouts in self if info["phase"] == phase for r in rollouts]


@pytest.fixture
def make_trainer(tiny_llama, chat_tokenizer, tmp_path):
    """Returns a function that builds a trainer, whose rollouts are in `trainer.played` if it has no
    other sink; options are fields of GRPOEnvConfig."""
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer
    from training.cells import QUICK

    register("Digit", DigitEnv)
    register("Countdown", CountdownEnv)

    def make(
        env=None,
        model=None,
        dataset=None,
        eval_dataset=None,
        sink=None,
        token_sink=None,
        peft_config=None,
        envs=(),
        engine=None,
        engine_section=None,
        **options,
    ):
        defaults = {
            "output_dir": str(tmp_path / "out"),
            "max_steps": 2,
            "engine": engine_section,
            "per_device_train_batch_size": 8,
            "learning_rate": 5e-3,
        }
        env, played = env or DigitEnv(chat_tokenizer), Played()
        trainer = GRPOEnvTrainer(
            model if model is not None else tiny_llama,
            GRPOEnvConfig(**(QUICK | defaults | options)),
            dataset if dataset is not None else env.get_train_dataset(),
            eval_dataset,
            chat_tokenizer,
            rollout_sink=sink or played,
            token_sink=token_sink,
            peft_config=peft_config,
            envs=envs,
            engine=engine,
        )
        trainer.played = played
        return trainer

    return make


@pytest.fixture
def make_exact(make_trainer, tiny_llama):
    """A trainer in float64 whose generation is what the test says."""
    from agentsgym.training.loss.losses import LOSSES
    from training.cells import NORM

    tiny_llama.double()

    def make(cell=None, epsilon_high=0.3, **options):
        loss = LOSSES[options.get("loss_type", "dapo")]
        if loss.needs_norm_tokens:
            options["loss_norm_tokens"] = NORM
        if "epsilon_high" in loss.settings:
            options["epsilon_high"] = epsilon_high
        trainer = make_trainer(model=tiny_llama, **options)
        trainer.model.train()
        if cell is not None:
            trainer._generate_and_score_completions = lambda inputs: cell.for_trainer()
        return trainer

    return make


@pytest.fixture
def twice(make_trainer, tiny_llama, tmp_path):
    """Returns a function that trains the model to its end, and another copy of it from the
    checkpoint of a step on, to the same weights; it returns both trainers."""
    import torch

    def weights(model):
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    def train(step, make=make_trainer, **options):
        saving, both = {"save_strategy": "steps", "save_steps": step}, []
        for resume in (None, str(tmp_path / "out" / f"checkpoint-{step}")):
            both.append(make(model=copy.deepcopy(tiny_llama), **(saving | options)))
            both[-1].train(resume_from_checkpoint=resume)
        whole, resumed = (weights(trainer.model) for trainer in both)
        assert torch.equal(whole, resumed) and not torch.equal(whole, weights(tiny_llama))
        return both

    return train
