"""Sampling and training through real vLLM servers, one of which dies."""

import pytest
import torch

from agentsgym import register
from agentsgym.envs import task_dataset
from agentsgym.generation.http import Retries
from agentsgym.generation.vllm import VLLMEngine
from agentsgym.types import GenerationRequest, SamplingParams
from agentsgym.types.requests import is_context_overflow
from helpers import DigitEnv

pytestmark = [pytest.mark.doors, pytest.mark.timeout(1200)]


class LongEnv(DigitEnv):
    """Six steps, whatever is said; a digit earns a reward. `on_step` is called after each."""

    on_step = staticmethod(lambda: None)

    def _step_episode(self, session_id, state, action):
        win = any(c.isdigit() for c in action)
        done = state.get("played", 0) >= 5
        self.on_step()
        return state | {"played": state.get("played", 0) + 1}, float(win), done, {"win": win}


def load_model(model_dir):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()


@torch.no_grad()
def full_logprobs(model, token_ids, temperature=1.0):
    """Log-probabilities of each token after the first, by a plain forward."""
    ids = torch.tensor([list(token_ids)])
    logps = (model(ids).logits[0].float() / temperature).log_softmax(-1)
    return logps[:-1].gather(1, ids[0, 1:, None])[:, 0]


def answers(engine, requests):
    engine.submit(requests)
    by_session = {}
    while results := engine.poll():
        by_session |= {result.session_id: result for result in results}
    return by_session


def test_more_prompts_than_a_pass_takes(engine):
    """4,000 tokens to read at once, where a pass takes 512."""
    requests = [
        GenerationRequest(f"s{i}", [(7 * i + j) % 200 + 5 for j in range(100)], SamplingParams(8))
        for i in range(40)
    ]
    assert [r.error for r in answers(engine, requests).values()] == [None] * 40


def test_ids_and_logprobs_are_those_of_a_full_forward(engine, model_dir, chat_tokenizer):
    model = load_model(model_dir)
    prompt = chat_tokenizer.encode("Is it an animal?")
    requests = [
        GenerationRequest(f"s{i}", [*prompt, i], SamplingParams(12, temperature), seed=i)
        for i in range(24)
        for temperature in [(1.0, 0.5, 0.0)[i % 3]]
    ]
    first, second = answers(engine, requests), answers(engine, requests)
    for request in requests:
        result = first[request.session_id]
        assert result.error is None and result.policy_version == 0
        assert result.token_ids == second[request.session_id].token_ids
        start = len(request.token_ids) - 1
        ids = [*request.token_ids, *result.token_ids]
        expected = full_logprobs(model, ids, request.sampling.temperature or 1.0)[start:]
        torch.testing.assert_close(
            torch.tensor(result.logprobs), expected, atol=1e-4, rtol=0, check_dtype=False
        )
        if request.sampling.temperature == 0:
            greedy = model(torch.tensor([ids])).logits[0, start:-1].argmax(-1)
            assert greedy.tolist() == list(result.token_ids)
    assert len({first[r.session_id].token_ids for r in requests}) > 12
    assert len(engine.pool.alive) == 2


def test_texts_are_scored_as_by_a_full_forward(teacher, model_dir):
    """As the teacher of distillation scores them; the second time servers have read them before."""
    model = load_model(model_dir)
    rows = [[(7 * i + j) % 200 + 5 for j in range(2 + 40 * i)] for i in range(10)]
    teacher.check_tokenizer()
    for _ in range(2):
        for ids, scores in zip(rows, teacher.score(rows), strict=True):
            assert scores[0] == 0.0
            expected = full_logprobs(model, ids).tolist()
            assert scores[1:] == pytest.approx(expected, abs=1e-4)


def test_stop_strings_end_tokens_and_errors(engine, chat_tokenizer):
    prompt = chat_tokenizer.encode("Is it")
    results = answers(
        engine,
        [
            GenerationRequest("stop", prompt, SamplingParams(200, stop=("e", "1"))),
            GenerationRequest("unknown id", [100_000], SamplingParams(4)),
            GenerationRequest("too long", [7] * 512, SamplingParams(4)),
            GenerationRequest("almost", [7] * 509, SamplingParams(40)),
        ],
    )
    stopped = results["stop"]
    *before, last = [chat_tokenizer.decode([token]) for token in stopped.token_ids]
    assert stopped.finish_reason == "stop"
    assert {"e", "1"} & set(last) or stopped.token_ids[-1] == chat_tokenizer.eos_token_id
    assert not {"e", "1"} & set("".join(before))
    assert "vocabulary" in results["unknown id"].error
    assert is_context_overflow(results["too long"].error)
    assert len(results["almost"].token_ids) <= 3


def make_trainer(model_dir, tokenizer, engine, sink, tmp_path, **options):
    from peft import LoraConfig

    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer

    made = options.pop("env", LongEnv)
    register("Long", made)
    actions = "free" if made is LongEnv else "constrained"
    env = made(tokenizer, {"max_steps_per_episode": 6, "actions": actions})
    settings = {
        "output_dir": str(tmp_path / "out"),
        "max_steps": 3,
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_action_tokens": 6,
        "learning_rate": 2e-2,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return GRPOEnvTrainer(
        load_model(model_dir),
        GRPOEnvConfig(**(settings | options)),
        task_dataset(env, [{"seed": k} for k in range(32)]),
        None,
        tokenizer,
        engine=engine,
        rollout_sink=sink,
        peft_config=LoraConfig(
            r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"]
        ),
    )


class ListedEnv(LongEnv):
    """The same with actions that begin one another."""

    def admissible_actions(self, state):
        return ["a", "a1", "a12", "say 3", "say 30", "b"][state.get("played", 0) % 2 :]


class Watch:
    """Compares every rollout with a full forward of the adapted model, as it is when played."""

    def __init__(self):
        self.trainer = None
        self.steps = []
        self.worst = 0.0
        self.worst_base = 0.0
        self.versions = []
        self.errors = []

    def __call__(self, rollouts, info):
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        self.steps.append(info["step"])
        self.versions.append({rollout.policy_version for rollout in rollouts})
        self.errors += [rollout.error for rollout in rollouts if rollout.failed]
        for row in (row for rollout in rollouts if not rollout.failed for row in rollout.rows):
            mask = torch.tensor(row.agent_token_mask[1:]).bool()
            sampled = torch.tensor(row.logprobs[1:])[mask]
            now = full_logprobs(model, row.token_ids)[mask]
            with model.disable_adapter():
                base = full_logprobs(model, row.token_ids)[mask]
            self.worst = max(self.worst, float((sampled - now).abs().max()))
            self.worst_base = max(self.worst_base, float((sampled - base).abs().max()))


def test_training_with_adapters_loaded_at_run_time(engine, model_dir, chat_tokenizer, tmp_path):
    watch = Watch()
    trainer = watch.trainer = make_trainer(model_dir, chat_tokenizer, engine, watch, tmp_path)
    trainer.train()
    assert watch.steps == [0, 1, 2]
    assert watch.versions == [{0}, {1}, {2}]
    assert watch.errors == []
    # The servers sampled from the adapter, which by now is far from the base.
    assert watch.worst < 1e-3
    assert watch.worst_base > 0.05
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert all(abs(entry["sampler/ratio"] - 1) < 1e-3 for entry in log)
    assert all(entry["staleness"] == 0 for entry in log)


def test_listed_actions_are_exact(engine, model_dir, chat_tokenizer, tmp_path):
    """vLLM's log-probabilities among the listed actions are the trainer's, base and adapter."""
    gaps, said = [], set()

    def look(rollouts, info):
        assert not any(rollout.failed for rollout in rollouts)
        model = trainer.accelerator.unwrap_model(trainer.model)
        said.update(step.action for rollout in rollouts for step in rollout.steps)
        for row in (row for rollout in rollouts for row in rollout.rows):
            assert row.supports.fits(row.token_ids)
            with torch.no_grad():
                logits = model(torch.tensor(row.token_ids[None])).logits[0] / 0.7
            for place, ids in row.supports:
                among = logits[place - 1, ids].log_softmax(-1)
                gap = among[ids.tolist().index(row.token_ids[place])] - row.logprobs[place]
                gaps.append(abs(float(gap)))

    options = {"max_steps": 2, "max_action_tokens": 12, "temperature": 0.7, "env": ListedEnv}
    trainer = make_trainer(model_dir, chat_tokenizer, engine, look, tmp_path, **options)
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(log) == 2 and log[0]["grad_norm"] > 0
    assert len(gaps) > 200 and max(gaps) < 1e-4
    assert all(entry["sampler/logp_difference"] < 1e-4 for entry in log)
    assert {"a", "a1", "b"} < said <= {"a", "a1", "a12", "say 3", "say 30", "b"}


def test_a_server_dies_in_the_middle(servers, mortal, model_dir, chat_tokenizer, tmp_path):
    urls = [servers[0].url, mortal.url]
    engine = VLLMEngine(urls, chat_tokenizer, retries=Retries(8, 0.2, 2.0))
    steps = 0

    def kill_one():
        nonlocal steps
        steps += 1
        if steps == 130:  # in the second generation of 16 rollouts x 6 steps
            mortal.kill()

    watch = Watch()
    trainer = watch.trainer = make_trainer(model_dir, chat_tokenizer, engine, watch, tmp_path)
    LongEnv.on_step = staticmethod(kill_one)
    try:
        trainer.train()
    finally:
        LongEnv.on_step = staticmethod(lambda: None)
    assert watch.versions == [{0}, {1}, {2}]
    assert watch.errors == []
    assert watch.worst < 1e-3
    engine.close()
    assert engine.stats.extra["retries"] >= 1 and len(engine.pool.alive) == 1
