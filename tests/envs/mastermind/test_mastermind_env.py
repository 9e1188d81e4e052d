"""Mastermind as an environment, and its players as agents."""

import pytest

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError
from agentsgym.envs.mastermind import (
    ExactPlayer,
    GreedyPlayer,
    MastermindEnv,
    worth,
)
from agentsgym.types import TrialInfo

TRIAL = {"episodes_per_trial": 2, "free_shots": 1}
BARE = {"hints": 0, "split": "codes"}
KINDS = ("exact", "entropy", "minimax")


def make(**config):
    return MastermindEnv(None, config)


def play(env, task, agent):
    rollout = env.run_trial([task], agent).rollouts[0]
    assert rollout.error is None
    return rollout


def all_tasks(env):
    return [
        {"solution": " ".join(env.color_names[peg] for peg in code), "seed": 0}
        for code in env.space.codes
    ]


def test_registered():
    assert isinstance(agentsgym.make("Mastermind"), MastermindEnv)
    assert agentsgym.make("Mastermind").class_path == "Mastermind"


def test_an_episode_in_words():
    env = make(step_cost=0.1)
    script = ScriptedAgent(["Blue, red.", "red blue"])
    episode = play(env, {"solution": "red blue", "seed": 1}, script).episodes[0]
    first, _, answer, _ = [message["content"] for message in episode.messages]
    rules, hint, form, example = first.splitlines()
    assert rules == "Find the code: 2 of red, green, blue, yellow, repeats allowed. 3 guesses."
    assert (form, example) == ("Answer with 2 colors only. For example:", "red green")
    assert hint.endswith("right colour.") and not hint.startswith("red blue")
    assert answer == "0 right place, 2 right colour."
    assert [step.reward for step in episode.steps] == pytest.approx([-0.1, 0.9])
    assert episode.stop_reason == "win" and episode.win is True


def test_limits_and_malformed_actions():
    env = make(error_allowance=3, **BARE)
    script = ScriptedAgent(["red", "red pink", "<think>?</think>red red"])
    episode = play(env, {"solution": "blue blue"}, script).episodes[0]
    assert [step.malformed for step in episode.steps] == [True, True, False]
    assert episode.steps[1].observation == "That is no code."
    assert (episode.stop_reason, episode.win, episode.reward) == ("guesses_used", False, 0.0)


def test_metrics_say_what_a_guess_brought():
    env = make(**BARE)
    script = ScriptedAgent(["red green", "red green", "blue red"])
    episode = play(env, {"solution": "blue red"}, script).episodes[0]
    metrics = [step.info["metrics"] for step in episode.steps]
    # "red green" leaves 4 of 16: blue red, yellow red, green blue, green yellow.
    assert [one["bits"] for one in metrics] == pytest.approx([2.0, 0.0, 2.0])
    assert [one["consistent"] for one in metrics] == [1.0, 0.0, 1.0]
    assert [step.info["informing"] for step in episode.steps] == [True, False, True]


def test_anchors_name_the_information_state():
    env = make(max_steps_per_episode=4, **BARE)
    one = play(env, {"solution": "blue red"}, ScriptedAgent(["red red", "blue green", "red blue"]))
    two = play(env, {"solution": "blue red"}, ScriptedAgent(["blue green", "red red", "red blue"]))
    a, b = (rollout.episodes[0].steps for rollout in (one, two))
    assert a[2].anchor == b[2].anchor is not None
    assert a[1].anchor != b[1].anchor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("carry", ["none", "full", "summary"])
def test_agents_earn_what_their_numbers_say(carry, kind):
    """Played on every code, the mean is the expectation; task by task it is the reference play."""
    env = make(colors=3, max_steps_per_episode=2, carry=carry, step_cost=0.1, **TRIAL, **BARE)
    agent, tasks = env.agent_of(kind), all_tasks(env)
    rollouts = [play(env, task, agent) for task in tasks]
    for task, rollout in zip(tasks, rollouts, strict=True):
        steps = [[s for s in e.steps if s.kind == "action"] for e in rollout.episodes]
        played = [(e.win, len(own)) for e, own in zip(rollout.episodes, steps, strict=True)]
        assert played == [(e.win, e.steps) for e in env.reference_play(task, kind)]
    mean = sum(rollout.final_reward for rollout in rollouts) / len(rollouts)
    expected = worth(env.space, env.player(kind), env.plan, env.space.everything)
    assert mean == pytest.approx(expected.score)


def test_the_code_is_found_in_the_free_shot_and_named_at_once():
    env = make(carry="full", **TRIAL)
    agent = env.optimal_agent()
    for row in list(env.get_eval_dataset())[:20]:
        rollout = play(env, row["task_data"], agent)
        assert rollout.final_reward == env.reference_score(row["task_data"]) == 1.0
        assert len(rollout.episodes[1].steps) == 1


def test_a_carried_trial_is_read_in_full():
    env = make(max_steps_per_episode=2, carry="full", error_allowance=9, **TRIAL, **BARE)
    script = ScriptedAgent(["red red", "blue blue", "hm", "red blue"])
    rollout = play(env, {"solution": "blue red"}, script)
    messages = [m for e in rollout.episodes for m in e.messages]
    assert messages[0]["content"].startswith("Round 1 of 2, practice. Find")
    start = "1 right place, 0 right colour.\n\nRound 2 of 2, scored, same code. Find"
    assert messages[4]["content"].startswith(start)


@pytest.mark.parametrize("carry", ["full", "summary"])
def test_the_player_reads_no_number_of_an_episode_in_the_prompt(carry, monkeypatch):
    monkeypatch.setattr(TrialInfo, "round_line", lambda trial, same: "Once more, with feeling.")
    # With one guess, the free shot is for learning and the scored episode for a possible code.
    env = make(carry=carry, max_steps_per_episode=1, **TRIAL, **BARE)
    for task in all_tasks(env):
        rollout = play(env, task, env.optimal_agent())
        assert "Once more" in rollout.episodes[1].steps[0].observation
        played = [(e.win, len(e.actions)) for e in rollout.episodes]
        assert played == [(e.win, e.steps) for e in env.reference_play(task)]


def test_players_by_size():
    assert isinstance(make().player(), ExactPlayer)
    large = make(colors=5, length=3)
    assert isinstance(large.player(), GreedyPlayer)
    assert large.reference_score({"solution": "red red blue", "seed": 0}) in (0.0, 1.0)


def keys(dataset):
    return {(row["task_data"]["solution"], row["task_data"]["seed"]) for row in dataset}


def test_hints_split_shares_codes_and_no_task():
    env = make()
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert (len(train), len(held_out)) == (16 * 12, 16 * 3)

    def with_hints(dataset):
        return {(r["task_data"]["solution"], env.read_task(r["task_data"])[1]) for r in dataset}

    assert len(with_hints(train)) == len(train) and len(with_hints(held_out)) == len(held_out)
    assert not with_hints(train) & with_hints(held_out)
    assert {code for code, _ in keys(train)} == {code for code, _ in keys(held_out)}
    assert keys(make().get_eval_dataset()) == keys(held_out)


def test_codes_split_shares_no_code():
    env = make(**BARE)
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert (len(train), len(held_out)) == (13, 3)
    assert not {code for code, _ in keys(train)} & {code for code, _ in keys(held_out)}


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("colors", {"colors": 1}),
        ("color_names", {"colors": 9}),
        ("color_names", {"color_names": ["a", "b"]}),
        ("color_names", {"color_names": ["a", "b", "c", "A"]}),
        ("length", {"length": 6}),
        ("split", {"hints": 0}),
        ("step_cost", {"step_cost": 0.5}),
        ("pegs", {"pegs": 2}),
    ],
)
def test_bad_settings_name_the_key(key, config):
    with pytest.raises(ConfigError, match=key):
        make(**config)


@pytest.mark.parametrize(
    "task",
    [{}, {"solution": "red"}, {"solution": "red pink"}, {"solution": "red red", "seed": 0.5}],
)
def test_bad_tasks(task):
    with pytest.raises(ValueError, match="task_data"):
        make()._initialize_episode("s", task)
