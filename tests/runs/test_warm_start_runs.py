"""Runs of a pretrained model that begin with a warm start: real models on disk, real games."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentsgym.envs import ConfigError
from agentsgym.runs import Progress, load_run, parse_config, train_run
from agentsgym.runs.evaluate import NoSignal, plays_better
from agentsgym.runs.files import RolloutWriter, RunDirectory, read_rollouts, read_summary
from agentsgym.warm_start.players import Figures
from chat_server import ChatServer
from of_rows import unasked
from workplace import Notes

CHATTY = """
from agentsgym import MultistepEnv, ScriptedAgent, task_dataset


class WordEnv(MultistepEnv):
    "Say the word of the task within two steps; words without a letter are malformed."

    def _initialize_episode(self, session_id, task_data):
        return dict(task_data)

    def _format_prompt(self, state, step):
        return f"guess the number {state['solution']}" if step == 0 else "no"

    def _step_episode(self, session_id, state, action):
        win = action.strip() == state["solution"]
        info = {"malformed": not action.strip().isdigit(), "win": win}
        return state, float(win), win, info

    def admissible_actions(self, state):
        return ["0", "1", "2", "3", "4", "5", "6", "7"]

    def teacher_agent(self, *, seed=0):
        return Reader()

    def optimal_agent(self):
        return ScriptedAgent(["3"])

    def get_train_dataset(self):
        return task_dataset(self, [{"solution": str(k % 6)} for k in range(24)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"solution": str(6 + k % 2), "seed": k} for k in range(4)])


class Reader:
    "Reads the solution in the prompt."

    def get_action(self, messages, agent_state):
        return messages[0]["content"].split()[-1], None
"""

THREE = """
from word import WordEnv


class ThreeEnv(WordEnv):
    "Say 3."

    def _step_episode(self, session_id, state, action):
        return super()._step_episode(session_id, {**state, "solution": "3"}, action)
"""

WARM = {
    "source": "teacher",
    "games": 24,
    "epochs": 10,
    "batch_size": 4,
    "eval_steps": 10,
    "patience": 9,
    "learning_rate": 2e-2,
    "held_out_share": 0.2,
    "probe_tasks": 2,
}


@pytest.fixture
def run(workplace):
    """Makes the configuration of a run in the current directory."""
    Path("word.py").write_text(CHATTY)

    def make(name="warm", warm=None, train=None, **keys):
        return parse_config(
            {
                "name": name,
                "env": "word.WordEnv",
                "env_config": {"max_steps_per_episode": 2},
                "model": "model",
                "warm_start": {**WARM, **(warm or {})},
                "train": {
                    "max_steps": 1,
                    "per_device_train_batch_size": 8,
                    "num_generations": 4,
                    "max_action_tokens": 3,
                    "learning_rate": 1e-4,
                    "use_cpu": True,
                    **(train or {}),
                },
                "eval": {"rollouts": 8},
                "threads": 1,
                "output_dir": name,
                **keys,
            }
        )

    return make


class KilledAt(Progress):
    """Kills the process when an update of the warm start is reported."""

    def __init__(self, step: int) -> None:
        self._step = step

    def warm_start(self, step, steps, values):
        if step == self._step:
            raise KeyboardInterrupt


def weights(folder):
    from safetensors.torch import load_file

    return load_file(Path(folder) / "model.safetensors")


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one | other)


def test_a_warm_started_run_from_beginning_to_end(run):
    notes = Notes()
    summary = train_run(run(signal_check=False), progress=notes)
    directory = RunDirectory(Path("warm"))
    assert summary.status == "finished" and read_summary(directory.summary) == summary
    assert None not in (summary.before, summary.warm_started, summary.after)
    assert {"before", "warm_start", "warm_started", "rl", "after"} <= set(summary.phases)
    figures = summary.model_figures["warm_start"]
    assert figures["games"] == {"games": 24, "reward": 1.0}
    losses = figures["training"]["held_out_losses"]
    assert losses[str(figures["training"]["step"])] == min(losses.values()) < losses["0"]
    assert figures["after"]["malformed"] < figures["before"]["malformed"]
    assert any("before the warm start" in note for note in notes.notes)
    # What is evaluated is the warm-started model, and RL goes on from it.
    texts = [
        [s.action for r in read_rollouts("warm", phase) for e in r.episodes for s in e.steps]
        for phase in ("before", "warmstarted", "after")
    ]
    assert texts[0] != texts[1]
    assert not same(weights("warm/warm-start/model"), weights("model"))
    assert not same(weights("warm/warm-start/model"), weights("warm/model"))


def test_a_killed_warm_start_continues_to_the_same_weights(run):
    """Its games are kept, and learning begins anew."""
    train_run(run("whole", signal_check=False))
    with pytest.raises(KeyboardInterrupt):
        train_run(run("parts", signal_check=False), progress=KilledAt(3))
    with pytest.raises(KeyboardInterrupt):
        train_run(load_run(Path("parts")), resume=True, progress=KilledAt(16))
    assert read_summary(Path("parts/summary.json")).status == "interrupted"
    games = list(read_rollouts("parts", "warmstart"))
    again = train_run(load_run(Path("parts")), resume=True)
    assert again.status == "finished"
    assert list(read_rollouts("parts", "warmstart")) == games
    for folder in ("warm-start/model", "model"):
        assert same(weights(f"parts/{folder}"), weights(f"whole/{folder}"))
    whole = read_summary(Path("whole/summary.json"))
    assert (again.before, again.warm_started, again.after) == (
        whole.before,
        whole.warm_started,
        whole.after,
    )


def test_the_reference_of_kl_is_the_warm_started_model(run, monkeypatch):
    """One step later the KL to the warm-started model is small, to the first model it is not."""
    from agentsgym.training import GRPOEnvTrainer

    seen = []
    train = GRPOEnvTrainer.train

    def look(trainer, **options):
        seen.append({k: v.clone() for k, v in trainer.ref_model.state_dict().items()})
        return train(trainer, **options)

    monkeypatch.setattr(GRPOEnvTrainer, "train", look)
    train_run(run(train={"beta": 0.1}, signal_check=False))
    start = weights("warm/warm-start/model")
    assert all(torch.equal(seen[0][name], start[name]) for name in start)
    shutil.rmtree("warm/checkpoints")
    shutil.rmtree("warm/model")
    train_run(load_run(Path("warm")), resume=True, restart=True)
    assert all(torch.equal(seen[1][name], start[name]) for name in start)


@pytest.mark.slow
def test_the_best_game_of_a_random_player_is_imitated(run):
    train_run(run(warm={"source": "random", "best_of": 12, "min_reward": 1.0}, signal_check=False))
    games = list(read_rollouts("warm", "warmstart"))
    assert len(games) == 24 and {game.final_reward for game in games} == {1.0}
    actions = {step.action for game in games for step in game.episodes[0].steps}
    assert len(actions) > 2


def test_a_model_that_plays_better_imitates_nothing_unless_it_was_asked_to(run):
    """A model that learned to say 3, where 3 wins, and games of others."""
    Path("three.py").write_text(THREE)
    three = {"env": "three.ThreeEnv", "signal_check": False}
    train_run(run(warm={"source": "optimal"}, **three))
    chosen = {"warm_start.source": "the choice of train: auto, which may have been changed"}
    notes = Notes(), Notes()
    for name, note, source in zip(("left", "asked"), notes, ("teacher", "random"), strict=True):
        worse = {"source": source, "probe_tasks": 8, "epochs": 1}
        config = run(name, worse, model="warm/warm-start/model", chosen=chosen, **three)
        summary = train_run(config, progress=note)
        figures = summary.model_figures["warm_start"]
        assert (summary.warm_started is None) == (name == "left")
        assert figures["before"]["probe_reward"] > figures["games"]["reward"] + 0.2
        start = weights("warm/warm-start/model")
        assert same(weights(f"{name}/warm-start/model"), start) == (name == "left")
    assert any("so the warm start is left out" in note for note in notes[0].notes)
    assert any("may unlearn how" in note for note in notes[1].notes)


def test_to_play_better_is_to_be_legal_and_to_earn_surely_more():
    """0.5 and 0.4, ± 0.03 and 0.04: two standard errors of the difference are 0.1."""
    imitated = Figures(legal=1.0, reward=0.4, error=0.04, games=64)
    own = {"probe_reward": 0.51, "probe_reward_error": 0.03, "malformed": 0.02}
    assert plays_better(own, imitated)
    assert not plays_better(own | {"probe_reward": 0.49}, imitated)
    assert not plays_better(own | {"malformed": 0.03}, imitated)
    assert not plays_better({"probe_reward": 9.0, "malformed": 0.0}, imitated)


def test_the_rollouts_of_another_run_are_rendered_anew(run, chat_tokenizer):
    """Its held-out tasks are not learned from, its damaged parts left out."""
    from word import Reader, WordEnv

    env = WordEnv(chat_tokenizer, {"max_steps_per_episode": 2})
    tasks = [{"solution": str(k)} for k in (0, 1, 2, 7)]  # 7 is a task of the evaluation
    games = list(env.run_trial(tasks, Reader()).rollouts)
    episode = games[1].episodes[0]
    games[1] = replace(games[1], episodes=(unasked(replace(episode, reward=99.0)),))
    write = RolloutWriter(Path("first"))
    for step in (0, 1):
        write(games, {"phase": "train", "step": step, "advantages": None})
    *_, (_, _, last) = RunDirectory(Path("first")).rollout_files()
    last.write_bytes(b"broken")
    notes = Notes()
    train_run(
        run("second", warm={"source": "rollouts", "run": "first"}, signal_check=False),
        progress=notes,
    )
    games = list(read_rollouts("second", "warmstart"))
    assert [game.task_data["solution"] for game in games] == ["0", "2"]
    assert all(row.spans and not row.sampled for game in games for row in game.rows)
    assert any("is damaged" in note for note in notes.notes)
    assert any("left out: damaged or too long" in note for note in notes.notes)


def test_a_chat_endpoint_teaches_and_its_games_are_not_asked_for_twice(run):
    server = ChatServer(say=lambda messages: messages[0]["content"].split()[-1], key=None)
    engine = {"urls": [server.url], "served_model": "big"}
    try:
        with pytest.raises(KeyboardInterrupt):
            train_run(
                run(warm={"source": "chat", "engine": engine}, signal_check=False),
                progress=KilledAt(2),
            )
        count = len(server.bodies)
        assert count == 24 and server.bodies[0]["model"] == "big"
        train_run(load_run(Path("warm")), resume=True)
        assert len(server.bodies) == count
    finally:
        server.close()
    assert {g.final_reward for g in read_rollouts("warm", "warmstart")} == {1.0}


def test_a_model_that_only_says_nonsense_is_stopped_with_advice(run):
    config = run(warm_start={})
    with pytest.raises(NoSignal, match=r"0% of the groups.*warm_start\.source=teacher"):
        train_run(config)
    summary = read_summary(Path("warm/summary.json"))
    assert summary.status == "failed" and "signal_check=false" in summary.error
    assert "before the first evaluation" in summary.error and "before" not in summary.phases
    assert len(list(read_rollouts("warm", "probe"))) == 8  # as many as the first generation has
    assert train_run(run("other", warm_start={}, signal_check=False)).status == "finished"


def test_a_warm_start_that_taught_nothing_stops_before_its_evaluation(run):
    config = run(warm={"games": 4, "epochs": 1, "learning_rate": 0.0})
    with pytest.raises(NoSignal, match="stopped after the warm start"):
        train_run(config)
    phases = read_summary(Path("warm/summary.json")).phases
    assert "warm_start" in phases and "warm_started" not in phases


def test_a_resumed_warm_start_needs_its_source_only_for_games_that_are_not_stored(run):
    train_run(run("first", signal_check=False, train={"max_steps": 2}))
    warm = {"source": "rollouts", "run": "first"}
    with pytest.raises(KeyboardInterrupt):
        train_run(run("parts", warm=warm, signal_check=False), progress=KilledAt(1))
    Path("first").rename("moved")
    assert train_run(load_run(Path("parts")), resume=True).status == "finished"
    with pytest.raises(ConfigError, match="first holds no training rollouts"):
        train_run(run("parts", warm=warm, signal_check=False), set_aside=True)


@pytest.mark.parametrize(
    ("warm", "key"),
    [
        ({"source": "nobody"}, "warm_start.source"),
        ({"gamse": 3}, "did you mean 'warm_start.games'"),
        ({"games": 0}, "warm_start.games"),
        ({"run": "first"}, "run is only for source"),
        ({"source": "rollouts"}, "run"),
        ({"source": "rollouts", "run": "nowhere"}, "nowhere holds no training rollouts"),
        ({"source": "chat", "engine": {"urls": ["http://x"]}}, "warm_start.engine.served_model"),
        ({"vocab_size": 500}, "vocab_size has no effect"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(run, warm, key):
    with pytest.raises(ConfigError, match=key):
        train_run(run(warm=warm))
    assert not Path("warm").exists()
