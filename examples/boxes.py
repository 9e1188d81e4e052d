"""A coin in one of three boxes, and two episodes on each task: the game of docs/concepts.md.

python examples/boxes.py

The tokenizer has whole words as tokens, so that the page's pictures stay small;
scripts/concept_pictures.py draws them from what is played here.
"""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentsgym import EnvSettings, MultistepEnv, credit

WORDS = ["Where", "is", "the", "coin", "?", "Empty", ".", "Again", ":", "box", "1", "2", "3"]
THOUGHT = ["<think>", "perhaps", "</think>"]
SPECIAL = ["<pad>", "<user>", "<agent>", "<end>"]
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}<user>{% else %}<agent>{% endif %}"
    " {{ m.content }} <end> {% endfor %}{% if add_generation_prompt %}<agent> {% endif %}"
)


def words_tokenizer(template):
    ids = {word: k for k, word in enumerate([*SPECIAL, *WORDS, *THOUGHT])}
    words = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=["<user>", "<agent>"],
        chat_template=template,
    )


class BoxesEnv(MultistepEnv):
    """A coin is in one of three boxes."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 2

    reward_range = (-0.4, 1.0)

    def _initialize_episode(self, session_id, task_data):
        return {"coin": task_data["coin"], "answer": "Where is the coin ?"}

    def _format_prompt(self, state, step):
        return state["answer"]

    def _step_episode(self, session_id, state, action):
        win = action.split()[-1] == state["coin"]
        return {**state, "answer": "Empty ."}, 1.0 if win else -0.2, win, {"win": win}

    def _format_result(self, state, reward):
        return "Again :"


class Players:
    """Each rollout plays the next script; what is left of it is the agent's state."""

    def __init__(self, scripts):
        self.scripts = iter(scripts)

    def get_action(self, messages, agent_state):
        script = next(self.scripts) if agent_state is None else agent_state
        return script[0], script[1:]


A = ["box 1", "box 2", "box 2"]
B = ["box 1", "box 1", "box 3", "box 2"]
C = ["box 3", "box 3", "box 1", "box 1"]
trial = {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"}
env = BoxesEnv(words_tokenizer(TEMPLATE), trial)
batch = env.run_trial([{"coin": "2"}], Players([A, B, C]), num_rollouts=3)
print(batch["final_rewards"])  # [1.0, 0.8, -0.4]

row = batch.rows[0]
text = env.tokenizer.convert_ids_to_tokens(row.token_ids)
print(
    [word for word, mine in zip(text, row.agent_token_mask, strict=True) if mine]
)  # box 1 box 2 box 2


def advantages_of_steps(batch, estimator):
    """The advantage of each step: that of its first agent token."""
    tokens = credit.advantages(batch, estimator)
    return [
        [round(float(values[span.start]), 6) for span in row.spans]
        for row, values in zip(batch.rows, tokens, strict=True)
    ]


by_trial = advantages_of_steps(batch, "trial")
print(by_trial)  # [[0.8, 0.8, 0.8], [0.5, 0.5, 0.5, 0.5], [-1.3, -1.3, -1.3, -1.3]]
by_step_return = advantages_of_steps(batch, "step_return")
print(by_step_return)  # [[0.0, 0.0, 0.8], [0.0, 0.0, 0.5, 1.2], [0.0, 0.0, -1.3, -1.2]]


# The rows of the third picture: the actions of A, now with a thought, under three settings. The
# second template drops the thoughts of earlier turns, as those of several reasoning models do.
DROPS_THOUGHTS = TEMPLATE.replace("{{ m.content }}", "{{ m.content.split('</think> ')[-1] }}")
thoughtful = [f"<think> perhaps {action[-1]} </think> {action}" for action in A]
SETTINGS = {
    "carry: full": (TEMPLATE, trial),
    "carry: none": (TEMPLATE, {**trial, "carry": "none"}),
    "carry: full, a template that drops thoughts": (DROPS_THOUGHTS, trial),
}
played = {
    name: BoxesEnv(words_tokenizer(template), config).run_trial(
        [{"coin": "2"}], Players([thoughtful])
    )
    for name, (template, config) in SETTINGS.items()
}
print([len(found.rows) for found in played.values()])  # [1, 2, 3]
