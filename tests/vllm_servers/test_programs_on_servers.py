"""A program whose calls are answered by vLLM: the endpoint stands in front of real servers too."""

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from agentsgym.envs import task_dataset
from agentsgym.envs.program import ProgramEnv

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]
HTTP = openai.DefaultHttpxClient()


class Branching(ProgramEnv):
    """Asks twice, and goes on after the first answer in two ways; digits are rewarded."""

    def run(self, task, client):
        api = openai.OpenAI(base_url=client.base_url, api_key=client.api_key, http_client=HTTP)
        rewards = []

        def ask(messages):
            done = api.chat.completions.create(model="any", messages=messages)
            answer = done.choices[0].message.content
            rewards.append(float(any(letter.isdigit() for letter in answer)))
            return [*messages, {"role": "assistant", "content": answer}]

        talk = ask([{"role": "user", "content": f"guess the number {task['seed']}"}])
        for word in ("up", "down"):
            ask([*talk, {"role": "user", "content": word}])
        return rewards


def test_a_training_step_on_a_programs_calls(engine, model_dir, chat_tokenizer, tmp_path):
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer

    env, played = Branching(None), []
    trainer = GRPOEnvTrainer(
        AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32),
        GRPOEnvConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=1,
            per_device_train_batch_size=16,
            num_generations=4,
            max_action_tokens=6,
            learning_rate=2e-2,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
        ),
        task_dataset(env, [{"seed": k} for k in range(32)]),
        None,
        chat_tokenizer,
        engine=engine,
        envs=[env],
        rollout_sink=lambda rollouts, info: played.extend(rollouts),
    )
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    assert len(played) == 16 and not any(rollout.error for rollout in played)
    worst = 0.0
    for rollout in played:
        assert [(row.begins, list(row.steps)) for row in rollout.rows] == [
            ("episode", [0, 1]),
            ("branch", [2]),
        ]
        for row in rollout.rows:
            ids = torch.tensor(row.token_ids[None].astype("int64"))
            with torch.no_grad():
                logps = model(ids).logits[0].float().log_softmax(-1)[:-1]
            own = logps.gather(1, ids[0, 1:, None])[:, 0]
            for span in row.spans:
                part = slice(span.start - 1, span.stop - 1)
                recorded = torch.tensor(row.logprobs[span.start : span.stop])
                worst = max(worst, float((own[part] - recorded).abs().max()))
    assert worst < 1e-3
    (line,) = [entry for entry in trainer.state.log_history if "sampler/logp_difference" in entry]
    assert line["sampler/logp_difference"] < 1e-3
    assert any(
        not torch.equal(one, other)
        for one, other in zip(before, trainer.model.parameters(), strict=True)
    )
