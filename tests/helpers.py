"""Toy environments and agents that several tests share."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentsgym import MultistepEnv, TwentyQuestionsEnv, task_dataset
from agentsgym.envs import EnvSettings
from agentsgym.types import Message

_TEXTS = [
    "Is it an animal? Can it fly? Yes. No. I don't know. [apple] [chair] [clock] [banana]",
    "The number is higher. The number is lower. 0 1 2 3 4 5 6 7 8 9 guess the number",
    "Let's play Twenty Questions. I am thinking of something. You have 20 turns left.",
]


def child_environment(*folders: str | Path) -> dict[str, str]:
    """The environment for a Python process that imports from these folders too, and otherwise runs
    the same versions as this process."""
    path = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def build_tokenizer(chat_template: str | None) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 400 tokens, trained on a few sentences."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        _TEXTS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<pad>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=chat_template,
    )


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Drops what an assistant thought in all turns but the last, as Qwen3's template does.
DROPS_THOUGHT = (
    "{% for m in messages %}{% set c = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in c %}{% set c = c.split('</think>')[-1] %}"
    "{% endif %}<|im_start|>{{ m['role'] }}\n{{ c }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def random_llama(tokenizer: PreTrainedTokenizerFast, **shape: Any) -> Any:
    """A Llama over the tokenizer's vocabulary with random weights, always the same. `shape` are
    fields of its configuration; the default has 2 layers of width 32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    defaults = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **(defaults | shape)))


def system(text: str) -> Message:
    return Message("system", text)


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for what happens in another thread or process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


class CountdownEnv(MultistepEnv):
    """Step k earns `rewards[k]`. Say "fail" to raise, "bad" for a malformed action."""

    class Settings(EnvSettings):
        bonus: float = Field(0.0, description="added by _calculate_reward")

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        if task_data.get("broken"):
            raise RuntimeError("this task cannot be set up")
        return {"rewards": list(task_data.get("rewards", [0.0, 1.0])), "played": []}

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        if step == 0:
            return "Is it an animal?"
        return f"The number is {step}"

    def _step_episode(self, session_id, state, action):
        if action == "fail":
            raise RuntimeError("the environment broke")
        played = [*state["played"], action]
        reward = state["rewards"][len(state["played"])]
        done = len(played) == len(state["rewards"])
        info = {"malformed": action == "bad", "win": reward > 0}
        return {**state, "played": played}, reward, done, info

    def _calculate_reward(self, state, actions, final_action, step_rewards):
        return sum(step_rewards) + self.config.bonus

    def get_train_dataset(self):
        return task_dataset(self, [{"rewards": [0.0, float(k)]} for k in range(8)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"rewards": [1.0, float(k)]} for k in range(4)])


class DigitEnv(MultistepEnv):
    """One or two steps: an action that holds a digit earns 1.0 and ends the episode."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 2

    def _initialize_episode(self, session_id, task_data):
        return {"seed": task_data.get("seed", 0)}

    def _format_prompt(self, state, step):
        return f"guess the number {state['seed'] % 7}"

    def _step_episode(self, session_id, state, action):
        win = any(c.isdigit() for c in action)
        return state, float(win), win, {"win": win, "metrics": {"letters": float(len(action))}}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(32)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": 100 + k} for k in range(8)])


def example_in_first_prompt(env, task):
    """The example of an action at the end of the first prompt of an episode."""
    state = env._initialize_episode("example", task)
    example = env.example_action(state)
    assert env._format_prompt(state, 0).endswith((f"For example:\n{example}", f" {example}."))
    return example


def questions_answered_by(answerer: Any, config: Mapping[str, Any] | None = None) -> Any:
    """Twenty Questions, in a class of its own, with another answerer than the table."""

    class Answered(TwentyQuestionsEnv):
        def make_answerer(self) -> Any:
            return answerer

    return Answered(None, config)
