"""What every process of the two-process tests runs, and what one process alone does for comparison.

Run as a script under `accelerate launch` with the folder to write to.
"""

import os
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback

from agentsgym import DirectOutputAgent, register
from agentsgym.envs import task_dataset
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from helpers import random_llama
from training.cells import NORM, QUICK, Cell, LettersEnv

CELLS = (
    ("grpo", "token", "rollout", False),
    ("dr_grpo", "rollout", "steps", True),
    ("luspo", "step", "rollout", "whole"),
    ("vespo", "token", "steps", False),
)
"""Loss, scope of its ratio, what rows are made of, and whether tokens were chosen from some ids."""
MASKS = {"icepop": [0.7, 1.4], "dppo": [0.001]}
"""Off-policy masks of the cells."""
ROLLOUTS = 16


class FailingEnv(LettersEnv):
    """One to three steps. The first rollout of task 3 fails."""

    def _step_episode(self, session_id, state, action):
        stepped = super()._step_episode(session_id, state, action)
        if len(state["rewards"]) == 3 and session_id.split("-")[1] == "000":
            raise RuntimeError("the environment broke")
        return stepped


class BrokenEnv(FailingEnv):
    """Each step fails in a process that says so."""

    broken = False

    def _step_episode(self, session_id, state, action):
        if self.broken:
            raise ConnectionError("the answerer is down")
        return super()._step_episode(session_id, state, action)


def tiny_model(tokenizer):
    """A random Llama in float64."""
    shape = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 512}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return random_llama(tokenizer, **shape, **heads).double()


def make_trainer(tokenizer, out, env_class=FailingEnv, given=None, **options):
    """A trainer on `FailingEnv`; the same number of rollouts whatever the number of processes.
    `given` are more arguments of the trainer."""
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer

    register("Failing", FailingEnv)
    register("Broken", BrokenEnv)
    env = env_class(tokenizer)
    tasks = [{"rewards": [0.0] * (1 + k % 3), "length": 1 + k % 3} for k in range(9)]
    defaults = {
        "output_dir": str(out),
        "max_tokens_per_forward": 80,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "bf16": False,
    }
    played = []
    trainer = GRPOEnvTrainer(
        tiny_model(tokenizer),
        GRPOEnvConfig(**(QUICK | defaults | options)),
        task_dataset(env, tasks),
        task_dataset(env, [{"rewards": [0.0] * (1 + k % 2)} for k in range(5)]),
        tokenizer,
        rollout_sink=lambda rollouts, info: played.extend((info["phase"], r) for r in rollouts),
        **(given or {}),
    )
    trainer.played = played
    return trainer


class Gradients(TrainerCallback):
    """Keeps the gradient of each optimizer step."""

    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
        self.seen.append(torch.cat([whole(g).reshape(-1) for g in grads]).clone())


def whole(tensor):
    """A tensor that may be spread over the processes."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def weights(trainer):
    model = trainer.accelerator.unwrap_model(trainer.model)
    return torch.cat([whole(p.detach()).reshape(-1) for p in model.parameters()]).clone()


def played(trainer, phase):
    """(group, index) → what was said and earned, of this process."""
    return {
        (r.group, r.index): (
            [row.token_ids.tolist() for row in r.rows],
            r.failed,
            [step.reward for e in r.episodes for step in e.steps],
        )
        for at, r in trainer.played
        if at == phase
    }


def train(tokenizer, out, processes, **options):
    """Two optimizer steps of two micro-batches each, and an evaluation."""
    per_process = options.pop("rollouts", ROLLOUTS) // processes
    accumulation = options.pop("accumulation", 2)
    trainer = make_trainer(
        tokenizer,
        out,
        max_steps=options.pop("max_steps", 2),
        per_device_train_batch_size=per_process // accumulation,
        gradient_accumulation_steps=accumulation,
        **options,
    )
    gradients = Gradients()
    trainer.add_callback(gradients)
    return trainer, gradients


def everything(tokenizer, out, processes):
    """All that is compared, as a dict that torch.save takes."""
    trainer, gradients = train(tokenizer, out / "a", processes)
    trainer.train()
    evaluated = trainer.evaluate()
    result = {
        "rank": trainer.accelerator.process_index,
        "gradients": gradients.seen,
        "weights": weights(trainer),
        "played": played(trainer, "train"),
        "evaluated": played(trainer, "eval"),
        "metrics": evaluated,
    }
    result["ahead"] = ahead(tokenizer, out / "ahead", processes)
    cells = [cell(tokenizer, out / "c", processes, 1 + k % 2, *c) for k, c in enumerate(CELLS)]
    result["cells"] = [gradient for gradient, _ in cells]
    result["logs"] = [logs for _, logs in cells]
    return result


class AtOnce:
    """A rollout source that plays what is submitted at once, so that the weights which play it do
    not depend on the time that others take."""

    idle_seconds = 0.0

    def __init__(self, collector):
        self._collector = collector
        self._over = []

    def submit(self, requests):
        agent = DirectOutputAgent(self._collector.engine, self._collector.train_sampling)
        self._over += play(requests, agent, self._collector.envs)

    def poll(self, timeout=None):
        over, self._over = self._over, []
        return over[::-1]

    def use_weights(self, update):
        self._collector.engine.update_weights(update)

    def close(self):
        pass


def one_ahead(tokenizer, out, processes, **options):
    """A trainer whose rollouts are played one generation ahead."""
    EmbeddedEngine.can_generate_ahead = True  # nothing is sampled beside the optimizer
    try:
        trainer, gradients = train(
            tokenizer, out, processes, rollouts=16, max_staleness=1, **options
        )
    finally:
        EmbeddedEngine.can_generate_ahead = False
    collector = trainer.collector

    def open_source():
        collector.source = AtOnce(collector)
        return collector.source

    collector.open_source = open_source
    return trainer, gradients


def ahead(tokenizer, out, processes):
    """Three steps, each on rollouts of the generation before."""
    trainer, gradients = one_ahead(tokenizer, out, processes, max_steps=3)
    trainer.train()
    return {
        "gradients": gradients.seen,
        "weights": weights(trainer),
        "played": played(trainer, "train"),
        "versions": [r.policy_version for at, r in trainer.played if at == "train"],
    }


def cell(tokenizer, out, processes, accumulation, loss, scope, train_on, choosy):
    """Gradient and logs of one window on random rollouts, of which each process has its share."""
    norm = {"loss_norm_tokens": NORM} if loss == "dr_grpo" else {}
    trainer, gradients = train(
        tokenizer,
        out,
        processes,
        max_steps=1,
        accumulation=accumulation,
        loss_type=loss,
        ratio_scope=scope,
        train_on=train_on,
        num_iterations=2,
        off_policy_masks=MASKS,
        **norm,
    )
    size = ROLLOUTS // processes
    first = trainer.accelerator.process_index * size
    whole = Cell(tiny_model(tokenizer), ROLLOUTS, train_on=train_on, choosy=choosy)

    def share(inputs):
        rollouts = whole.for_trainer()["rollouts"][first : first + size]
        return {"rollout_index": torch.arange(size), "rollouts": rollouts}

    trainer._generate_and_score_completions = share
    trainer.train()
    return gradients.seen[0], trainer.state.log_history[0]


def resume(tokenizer, out, processes):
    """Weights after four steps in one go, and after two and two with a checkpoint between; and what
    the curriculum knows at the end."""
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "curriculum": "length"}
    whole, _ = train(tokenizer, out / "whole", processes, **options)
    whole.train()
    resumed, _ = train(tokenizer, out / "whole", processes, **options)
    resumed.train(resume_from_checkpoint=str(out / "whole" / "checkpoint-2"))
    return weights(whole), weights(resumed), resumed.kept("curriculum")


def faults(tokenizer, out):
    """What each kind of fault ends with on this rank, by its name."""
    rank = int(os.environ["RANK"])

    def ends_with(name, break_it, make=train, **options):
        trainer, _ = make(tokenizer, out / name, 2, max_steps=1, **options)
        break_it(trainer)
        try:
            trainer.train()
            trainer.evaluate()
        except Exception as error:
            return type(error).__name__, str(error)
        finally:
            BrokenEnv.broken = False
        return "finished", trainer.state.log_history[0].get("failed")

    def broken(here):
        def break_it(trainer):
            BrokenEnv.broken = here

        return break_it

    def sink(trainer):
        def fail(rollouts, info):
            if rank == 0:
                raise OSError("No space left on device")

        trainer.rollout_sink = fail

    def ahead_of(trainer):
        def poll(timeout=None):
            raise ConnectionError("the server is down")

        update = trainer.collector.engine.update_weights

        def collective(given):
            given.gather([rank])
            update(given)

        trainer.collector.engine.update_weights = collective
        if rank == 1:
            source = trainer.collector.open_source()
            source.poll = poll
            trainer.collector.open_source = lambda: source

    return {
        "one rank": ends_with("a", broken(rank == 1), env_class=BrokenEnv),
        "all ranks": ends_with("b", broken(True), env_class=BrokenEnv),
        "sink": ends_with("c", sink),
        "ahead": ends_with("e", ahead_of, make=one_ahead),
    }


def main():
    from helpers import CHATML, build_tokenizer

    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    tokenizer = build_tokenizer(CHATML)
    result = everything(tokenizer, out, 2)
    result["resumed"] = resume(tokenizer, out / "r", 2)
    result["faults"] = faults(tokenizer, out / "f")
    torch.save(result, out / f"rank{result['rank']}.pt")


if __name__ == "__main__":
    main()
