"""An environment as a tool in TRL's GRPOTrainer (`environment_factory`)."""

import json
from pathlib import Path

import pytest
import trl
from trl import GRPOConfig, GRPOTrainer

from agentsgym import MultistepEnv, ScriptedAgent, register, task_dataset
from agentsgym.integrations.trl import environment_factory
from agentsgym.integrations.trl.tools import OVER
from helpers import CountdownEnv, build_tokenizer, random_llama
from integrations.trl_ranks import OPTIONS

QWEN = Path(trl.__file__).parent / "chat_templates/qwen3.jinja"


def row(env, task):
    return next(iter(task_dataset(env, [task])))


@pytest.fixture
def made():
    register("Countdown", CountdownEnv)
    return environment_factory()()


def test_a_trial_through_the_tool(made):
    env = CountdownEnv()
    task = row(env, {"rewards": [0.5, 0.0, 1.0]})
    assert made.reset(**task, prompt=[]) == "Is it an animal?"
    observations = [made.act(action) for action in ("a", "bad", "c", "d")]
    assert observations == ["The number is 1", "The number is 2", OVER, OVER]
    native = env.run_trial([task], ScriptedAgent(["a", "bad", "c"]))
    assert made.get_reward() == native["final_rewards"][0]


def test_a_trial_that_the_model_leaves_is_scored_and_one_that_fails_is_not(made):
    env = CountdownEnv()
    made.reset(**row(env, {"rewards": [0.5, 1.0]}))
    made.act("a")
    assert made.get_reward() == 0.5
    made.reset(**row(env, {}))
    assert made.act("fail") == OVER and made.get_reward() is None
    made.reset(**row(env, {"rewards": [1.0]}))  # an instance is used again
    assert made.act("a") == OVER and made.get_reward() == 1.0


def test_a_trial_that_is_not_finished_is_closed_by_the_next():
    ended = []

    class Closing(CountdownEnv):
        def _end_episode(self, session_id, state):
            ended.append(session_id)

    env = Closing()
    made = environment_factory([env])()
    made.reset(**row(env, {}))
    assert not ended
    made.reset(**row(env, {}))
    assert len(ended) == 1 and len(env.active_states) == 1


class Greeting(MultistepEnv):
    """Wants to be told the number of its task, in at most three tries."""

    def _initialize_episode(self, session_id, task_data):
        return {"number": task_data["number"]}

    def _format_prompt(self, state, step):
        return f"try {step}"

    def _step_episode(self, session_id, state, action):
        win = action == state["number"]
        return state, float(win), win, {"win": win}

    def get_train_dataset(self):
        return task_dataset(self, [{"number": str(n)} for n in range(8)])


class Scripted(GRPOTrainer):
    """Says what a script says instead of what the model does."""

    turns = ("1", "2", "3")

    def _generate_single_turn(self, prompt_ids, *_, **__):
        # The prompts of one turn are those of the rollouts that go on.
        calls = [{"name": "act", "arguments": {"action": self.turns[self.turn]}}] * len(prompt_ids)
        texts = [f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>" for call in calls]
        if self.turn == len(self.turns) - 1:
            texts = ["Goodbye.<|im_end|>"] * len(prompt_ids)
        self.turn += 1
        return [self.processing_class(text)["input_ids"] for text in texts], None


def test_trls_trainer_plays_it(tmp_path):
    register("Greeting", Greeting)
    tokenizer = build_tokenizer(QWEN.read_text())
    sizes = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 256}
    trainer = Scripted(
        random_llama(tokenizer),
        args=GRPOConfig(str(tmp_path), **OPTIONS | sizes),
        train_dataset=Greeting().get_train_dataset().select([1, 2]).map(with_prompt),
        processing_class=tokenizer,
        environment_factory=environment_factory(),
    )
    trainer.turn = 0
    trainer.train()
    # The tasks are 1 and 2: both are solved by the second call.
    assert [one.get_reward() for one in trainer.environments] == [1.0] * 4
    logged = trainer.state.log_history[0]
    assert logged["rewards/ToolEnvironment/mean"] == 1.0
    assert logged["tools/call_frequency"] == 2.0 and logged["tools/failure_frequency"] == 0.0
    seen = tokenizer.decode(trainer._buffered_inputs[0]["prompt_ids"][0])
    assert "Use the tool.\n\ntry 0" in seen and '"name": "act"' in seen


def with_prompt(_):
    return {"prompt": [{"role": "user", "content": "Use the tool."}]}
