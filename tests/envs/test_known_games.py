"""What holds for every game whose best play is known."""

import itertools

import pytest

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError
from agentsgym.types import TrialInfo

TRIAL = {"episodes_per_trial": 2, "free_shots": 1}
BARE = {"hints": 0}
QUICK = {"table": "quickstart", "split": "hints", "hints": 2, "max_steps_per_episode": 8}
PLAYED = {
    "a quickstart game": ("TwentyQuestions", {**QUICK, "answer_style": "echo"}),
    "paid information": ("TwentyQuestions", {**QUICK, "information_reward": 0.15}),
    "a bandit": ("Bandit", {"max_steps_per_episode": 4}),
    "codes": ("Mastermind", {"colors": 3, "max_steps_per_episode": 2, **BARE}),
    "words": ("Wordle", {}),
    "words after a hint": ("Wordle", {"hints": 1, "max_steps_per_episode": 2}),
    "a noisy place": ("Explore", {"noise": 0.3}),
    "two places": ("Explore", {"facts": 2, "noise": 0.1}),
    "several looks": ("Explore", {"max_steps_per_episode": 3, "look_cost": 0.1}),
    "switches": ("Explore", {"game": "switches", "noise": 0.1, "facts": 2}),
}


def make(name, **config):
    return agentsgym.make(name, env_config=config)


def play(env, task, lines):
    rollout = env.run_trial([task], ScriptedAgent(lines)).rollouts[0]
    assert rollout.error is None
    return rollout


@pytest.mark.parametrize("carry", ["none", "full", "summary"])
@pytest.mark.parametrize("game", PLAYED)
def test_a_best_player_earns_its_reference_on_every_task(game, carry, monkeypatch):
    """It does so without reading its number of the episode in the prompt."""
    monkeypatch.setattr(TrialInfo, "round_line", lambda trial, same: "Once more, with feeling.")
    name, config = PLAYED[game]
    env = make(name, **config, **TRIAL, carry=carry)
    assert env.class_path == name
    kinds = {"Explore": ("best", "never")}
    tasks = list(env.get_eval_dataset()["task_data"])[:6]
    for kind in kinds.get(name, ("best",)):
        for rollout in env.run_trial(tasks, env.agent_of(kind)).rollouts:
            assert rollout.error is None
            task = rollout.task_data
            assert rollout.final_reward == pytest.approx(env.score_of(task, kind))
            played = [(e.reward, bool(e.win), len(e.actions)) for e in rollout.episodes]
            for one, reference in zip(played, env.reference_play(task, kind), strict=True):
                assert one == (pytest.approx(reference.reward), reference.win, reference.steps)
            steps = [step for episode in rollout.episodes for step in episode.steps]
            assert not any(step.malformed for step in steps)


@pytest.mark.parametrize(
    ("name", "config", "task", "actions", "others"),
    [
        ("Bandit", {}, {"probabilities": [1.0, 1.0, 0.0]}, "red,green,blue", "green,red,red"),
        (
            "Mastermind",
            {"max_steps_per_episode": 4, **BARE},
            {"solution": "blue red"},
            "red red,blue green,red blue",
            "blue green,red red,red blue",
        ),
        ("Wordle", {}, {"solution": "speed"}, "abuse,steel,speed", "steel,abuse,speed"),
        ("Explore", {"facts": 2, "max_steps_per_episode": 3}, {"seed": 3},
         "look red,look blue,look red", "look blue,look red,look blue"),
        ("TwentyQuestions", {}, {"solution": "dog"}, "Is it a pet?,Can it fly?,Is it red?",
         "Can it fly?,Is it a pet?,Is it big?"),
    ],
)  # fmt: skip
def test_equal_knowledge_has_equal_anchors(name, config, task, actions, others):
    env = make(name, **config)
    one, two = (play(env, task, lines.split(",")).episodes[0].steps for lines in (actions, others))
    assert one[2].anchor == two[2].anchor is not None
    assert one[1].anchor != two[1].anchor


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *itertools.product(["Bandit", "Explore", "Mastermind", "TwentyQuestions", "Wordle"], [{}]),
        ("Bandit", {"probabilities": [0.5, 0.5, 1.5]}),
        ("Bandit", {"seed": -1}),
        ("Explore", {"seed": "1"}),
        ("Explore", {"seed": True}),
        ("Mastermind", {"solution": "red red", "seed": 0.5}),
        ("Wordle", {"solution": "crane!"}),
        ("Wordle", {"solution": "zzzzz"}),
        ("TwentyQuestions", {"solution": " "}),
        ("TwentyQuestions", {"solution": "dog", "seed": "1"}),
    ],
)
def test_bad_tasks_are_refused(name, task):
    env = make(name)
    assert "task_data" in env.check_task(task)
    with pytest.raises(ValueError, match="task_data"):
        env._initialize_episode("s", task)
    with pytest.raises(ValueError, match="task_data"):
        env.reference_score(task)


@pytest.mark.parametrize(
    ("name", "key", "config"),
    [
        ("Mastermind", "length", {"length": 6}),
        ("Explore", "choices", {"choices": 6, "game": "switches"}),
        ("Explore", "right_reward", {"wrong_reward": 1.0}),
        ("Explore", "free_shots", {"free_shots": 2, "episodes_per_trial": 2}),
        ("TwentyQuestions", "solution", {"solution": "apple"}),
        ("TwentyQuestions", "own table", {"hardcore": True, "table": "default"}),
    ],
)
def test_bad_settings_are_named(name, key, config):
    with pytest.raises(ConfigError, match=key):
        make(name, **config)


@pytest.mark.parametrize(
    ("name", "config", "sizes"),
    [
        ("Bandit", {"train_tasks": 50, "eval_tasks": 20}, (50, 20)),
        ("Explore", {"train_tasks": 4, "eval_tasks": 3}, (4, 3)),
        ("Mastermind", {}, (16 * 12, 16 * 3)),
        ("Mastermind", BARE, (13, 3)),
        ("Wordle", {}, (444, 111)),
        ("Wordle", {"hints": 1, "train_tasks_per_code": 2, "eval_tasks_per_code": 1}, (1110, 555)),
        ("TwentyQuestions", {}, (488, 121)),
        (
            "TwentyQuestions",
            {**QUICK, "train_tasks_per_secret": 20, "eval_tasks_per_secret": 4},
            (64 * 20, 64 * 4),
        ),
    ],
)
def test_tasks_are_disjoint_and_the_same_again(name, config, sizes):
    def tasks():
        env = make(name, **config)
        sets = (env.get_train_dataset(), env.get_eval_dataset())
        assert sets[0][0]["env_class_path"] == name
        return [[str(sorted(task.items())) for task in one["task_data"]] for one in sets]

    train, held_out = tasks()
    assert (len(set(train)), len(set(held_out))) == sizes and not {*train} & {*held_out}
    assert tasks() == [train, held_out]


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Bandit", {"arms": 6, "max_steps_per_episode": 30}),
        ("Explore", {"max_steps_per_episode": 60}),
        ("ExploreMany", {"episodes_per_trial": 120, "free_shots": 119}),
        ("Mastermind", {"colors": 5, "length": 3}),
    ],
)
def test_a_trial_too_large_for_exact_play_has_no_reference(name, config):
    env = make(name, **config)
    drawn = {"family": "place", "words": "train", "patterns": "train"}
    assert env.reference_score({"seed": 0, "solution": "red red red", **drawn}) is None
    with pytest.raises(ConfigError, match="no player is known to be optimal"):
        env.optimal_agent()
