"""`agentsgym credit RUN --replay`: what the actions of a stored run were worth, by playing on."""

import json

import pytest

from agentsgym import DirectOutputAgent, MultistepEnv, SamplingParams, task_dataset
from agentsgym.envs import EnvPool, EnvSettings, register
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.report.stored import Source
from agentsgym.rollout import play
from agentsgym.runs.branches import decisions_of
from agentsgym.runs.files import RolloutWriter, read_rollouts
from agentsgym.types import RolloutRequest
from helpers import random_llama

PLAYED: list[str] = []
STOP_AFTER: list[int] = []
SAYS = ["and"]

CONFIG = """\
env: tests/Vowels
model: model
threads: 1
seed: 3
train: {advantage_estimator: rloo, max_action_tokens: 3, temperature: 0.7}
eval: {temperature: 0.0}
"""


class VowelsEnv(MultistepEnv):
    """Two actions: what is earned at the end are their vowels, up to ten. The user presses Ctrl-C
    after so many rollouts; `SAYS` is what the environment says between them."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 2

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        if STOP_AFTER and len(PLAYED) >= STOP_AFTER[0]:
            raise KeyboardInterrupt
        PLAYED.append(session_id)
        return ""

    def _format_prompt(self, state, step):
        return SAYS[0] if step else "Can it fly?"

    def _step_episode(self, session_id, state, action):
        new, state = not state, state + action
        done = SAYS[0] in state or len(state) > 8
        earned = min(10, sum(letter in "aeiou" for letter in state)) / 10
        return state, earned if done else 0.0, done, {"informing": new}

    def get_eval_dataset(self):
        return task_dataset(self, [{}])


def agent_of(tokenizer):
    engine = EmbeddedEngine(random_llama(tokenizer).eval(), tokenizer)
    return DirectOutputAgent(engine, SamplingParams(3, 0.7))


@pytest.fixture
def run_dir(workplace, chat_tokenizer):
    """A run with one generation of two groups of three, which its model sampled."""
    register("tests/Vowels", VowelsEnv)
    root = workplace / "run"
    root.mkdir()
    (root / "config.yaml").write_text(CONFIG)
    (workplace / "model").rename(root / "model")
    rollouts = VowelsEnv(chat_tokenizer).run_trial([{}, {}], agent_of(chat_tokenizer), 3).rollouts
    RolloutWriter(root)(rollouts, {"phase": "train", "step": 2, "advantages": None})
    PLAYED.clear()
    STOP_AFTER.clear()
    SAYS[:] = ["and"]
    return root


def measured(invoke, root, *more):
    result = invoke("credit", str(root), "--replay", "--plays", "4", "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def test_the_effects_are_those_of_the_branches_that_are_stored(invoke, run_dir):
    found, _ = measured(invoke, run_dir)
    trunks = {one.session_id: one for one in read_rollouts(run_dir)}
    assert found["decisions"] == len(found["effects"]) == sum(len(t.nodes) for t in trunks.values())
    (folder,) = (run_dir / "replay").iterdir()
    assert folder.name.startswith("train-000002-")
    branches = list(read_rollouts(folder))
    assert found["branches"] == len(branches) == len(PLAYED) == len(set(PLAYED))
    assert found["steps"] == sum(len(one.steps) for one in branches) and not found["failed"]
    values: dict[tuple[int, int, int], list[float]] = {}
    for one in branches:
        trunk = trunks[one.session_id.partition("@")[0]]
        stop = int(trunk.at[one.replayed - 1][2]) if one.replayed else 0
        assert one.token_ids[:stop].tolist() == trunk.token_ids[:stop].tolist()
        values.setdefault((one.group, one.index, one.replayed), []).append(one.final_reward)
    assert any(one["effect"] for one in found["effects"])
    for one in found["effects"]:
        assert one["pairs"] == sum(a["plays"] for a in one["alternatives"]) == 4
    (stored,) = [one.read() for one in Source(run_dir).sets()]
    assert len(stored.effects) == len(found["effects"]) and stored.problem is None
    for one in found["effects"]:
        effect = stored.effects[one["session_id"], one["episode"], one["step"]]
        assert (effect.effect, effect.action) == (one["effect"], one["action"])
    assert set(found["correlations"]) >= {"rloo", "trial", "step_return"}


def test_a_budget_is_kept_and_a_larger_one_goes_on(invoke, run_dir, monkeypatch):
    monkeypatch.setattr("agentsgym.runs.branches._AT_ONCE", 2)
    some, _ = measured(invoke, run_dir, "--budget", "20")
    assert 0 < len(some["effects"]) < some["decisions"] and some["steps"] >= 20
    before = len(PLAYED)
    every, said = measured(invoke, run_dir)
    assert f"has {before} rollouts" in " ".join(said.split())
    assert len(PLAYED) == len(set(PLAYED)) == every["branches"] and every["steps"] > some["steps"]
    assert every["effects"][: len(some["effects"])] == some["effects"]
    again, _ = measured(invoke, run_dir, "--budget", "20")
    assert again == some and len(PLAYED) == every["branches"]


def test_after_an_interruption_it_goes_on_to_the_same_effects(invoke, run_dir):
    whole, _ = measured(invoke, run_dir)
    (folder,) = (run_dir / "replay").iterdir()
    folder.rename(run_dir / "elsewhere")
    PLAYED.clear()
    STOP_AFTER.append(40)
    assert invoke("credit", str(run_dir), "--replay", "--plays", "4").exit_code != 0
    STOP_AFTER.clear()
    kept = len(list(read_rollouts(folder)))
    PLAYED.clear()
    again, _ = measured(invoke, run_dir)
    assert again == whole and kept > 0 and len(PLAYED) == whole["branches"] - kept


def test_branches_of_other_weights_are_not_mixed(invoke, run_dir, chat_tokenizer):
    measured(invoke, run_dir, "--group", "0")
    random_llama(chat_tokenizer, hidden_size=16).save_pretrained(run_dir / "model")
    PLAYED.clear()
    found, said = measured(invoke, run_dir, "--group", "0")
    assert len(PLAYED) == found["branches"] and "has " not in said
    assert len(list((run_dir / "replay").iterdir())) == 2


def test_what_a_branch_repeats_is_measured_in_its_trunk(invoke, run_dir, chat_tokenizer):
    trunk = next(one for one in read_rollouts(run_dir) if len(one.nodes) == 2)
    request = RolloutRequest.branch(trunk, 1, index=3, seed=5)
    pool = EnvPool(chat_tokenizer, envs=[VowelsEnv(chat_tokenizer)])
    (branch,) = play([request], agent_of(chat_tokenizer), pool)
    assert (branch.replayed, len(branch.nodes)) == (1, 2)
    kept = [one for one in read_rollouts(run_dir) if one.group == trunk.group]
    info = {"phase": "train", "step": 3, "advantages": None}
    RolloutWriter(run_dir)([*kept, branch], info)
    found, _ = measured(invoke, run_dir, "--step", "3")
    assert found["decisions"] == sum(len(one.nodes) for one in kept) + 1
    (own,) = [one for one in found["effects"] if one["rollout"] == 3]
    assert (own["step"], own["pairs"]) == (1, 4) and not found["failed"]


def test_a_table_for_people(invoke, run_dir):
    result = invoke("credit", str(run_dir), "--replay", "--plays", "4", "--where", "unlikely")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "decisions measured, with 4 plays from the state before and after each" in text
    assert "correlation with the effect" in text
    assert "branches took" in text and "failed" not in text
    assert "played by" in result.stderr


def test_an_environment_that_answers_otherwise_says_so(invoke, run_dir):
    SAYS[:] = ["or"]
    result = invoke("credit", str(run_dir), "--replay", "--plays", "4")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "branches failed; the first:" in text and "says 'or', where it said 'and'" in text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (CONFIG.replace("tests/Vowels", "Bandit"), "not in the run's Bandit"),
        (CONFIG.replace("temperature: 0.7", "top_p: 0.9"), "train.top_p or train.top_k"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(invoke, run_dir, config, words):
    (run_dir / "config.yaml").write_text(config)
    result = invoke("credit", str(run_dir), "--replay")
    assert result.exit_code == 2 and words in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_decisions_come_in_a_drawn_order_or_the_unlikely_ones_first(run_dir):
    rollouts = list(read_rollouts(run_dir))
    unlikely = decisions_of(rollouts, "unlikely", 0)
    sums = [float(one.logprobs[a:b].sum()) for one, n in unlikely for _, a, b in [one.at[n]]]
    assert sums == sorted(sums) and len(sums) == sum(len(one.nodes) for one in rollouts)
    drawn = [
        [(one.session_id, n) for one, n in decisions_of(rollouts, "random", s)] for s in (0, 1)
    ]
    assert drawn[0] != drawn[1] and sorted(drawn[0]) == sorted(drawn[1])
