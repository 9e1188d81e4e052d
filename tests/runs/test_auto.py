"""`train: auto`: settings from what was probed, by hand; the probe of games; what a run does."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import LlamaConfig

from agentsgym.envs import ConfigError, make
from agentsgym.runs import parse_config, train_run
from agentsgym.runs.auto import Probed, choices, probe, resolved
from agentsgym.runs.settings import LoraSettings
from workplace import Notes

GAME = '''
from agentsgym import MultistepEnv, task_dataset


class PickEnv(MultistepEnv):
    """Say the number of the prompt; those of the size 2 are two numbers, and nobody wins them."""

    def _initialize_episode(self, session_id, task_data):
        return dict(task_data)

    def _format_prompt(self, state, step):
        return f"say {state['number']}\\nof four"

    def _step_episode(self, session_id, state, action):
        win = state["size"] == 1 and action == str(state["number"])
        return state, float(win), True, {"malformed": not action.isdigit(), "win": win}

    def get_train_dataset(self):
        tasks = [{"number": k % 4, "size": 1 + k % 2, "name": f"{k}"} for k in range(64)]
        return task_dataset(self, tasks)

    def get_eval_dataset(self):
        return task_dataset(self, [{"number": k, "size": 1, "name": "-"} for k in range(4)])

    def admissible_actions(self, state):
        return ["0", "1", "2", "3"]
'''

SEEN = Probed(
    reward=0.25,
    best_of=0.9,
    signal={8: 0.8, 16: 0.95, 32: 1.0},
    new_lines=0.4,
    pieces=60,
    mean_pieces=50.0,
    action_bytes=11,
    actions=2,
    carries=False,
    random_teacher=True,
    tasks=500,
)


BEST_OF = "warm_start.best_of"


def chosen(probed, **options):
    return {one.key: one.value for one in choices(probed, **options)}


def test_lucky_games_of_a_teacher_are_not_imitated():
    """Best play earns 0.85, and the best of sixteen games 0.9: they guess, and do not ask."""
    lucky = replace(SEEN, reference=0.85)
    (reason,) = (one.reason for one in choices(lucky) if one.key == BEST_OF)
    assert "more than best play, 0.850" in reason
    assert BEST_OF not in chosen(replace(lucky, random_teacher=False))
    assert BEST_OF in chosen(replace(lucky, random_teacher=False, reference=0.95))


def test_the_settings_follow_from_what_was_probed():
    """6000 / 50 = 120 games in 15 groups of 8; updates of 1700 / 50 = 34 games; positions for 60
    pieces twice and two actions of 64 tokens, 248; a byte is a token at most, and an end."""
    got = chosen(SEEN)
    assert got["train.num_generations"] == 8 and got["train.per_device_train_batch_size"] == 120
    assert got["warm_start.batch_size"] == 34 and got["warm_start.games_per_round"] == 170
    assert got["warm_start.model.max_positions"] == 512
    assert got["train.max_action_tokens"] == 12
    assert got["train.advantage_estimator"] == "grpo" and "train.curriculum" not in got
    assert got["warm_start.tokenizer"] == "phrases" and got["warm_start.best_of"] == 16
    assert got["train.learning_rate"] == 3e-4 and got["train.beta"] == 0.02
    assert all(one.reason for one in choices(SEEN))


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"signal": {8: 0.3, 16: 0.55, 32: 0.8}}, "train.num_generations", 16),
        ({"signal": {8: 0.3, 16: 0.55, 32: 0.8}}, "train.per_device_train_batch_size", 128),
        ({"signal": {8: 0.0, 16: 0.0, 32: 0.0}}, "train.per_device_train_batch_size", 512),
        (
            {"signal": {8: 0.0, 16: 0.0, 32: 0.0}, "random_teacher": False},
            "train.per_device_train_batch_size",
            120,
        ),
        ({"tasks": 1}, "train.num_generations", 120),
        ({"tasks": 7}, "train.num_generations", 18),
        ({"tasks": 7}, "train.per_device_train_batch_size", 126),
        ({"mean_pieces": 190.0}, "train.per_device_train_batch_size", 40),
        ({"mean_pieces": 4.0}, "train.per_device_train_batch_size", 512),
        ({"new_lines": 0.01}, "warm_start.tokenizer", "lines"),
        ({"new_lines": 0.01}, "warm_start.model.induction_heads", None),
        ({"new_lines": 0.01}, "train.learning_rate", 1e-3),
        ({"carries": True}, "train.advantage_estimator", "trial"),
        ({"random_teacher": False}, BEST_OF, 16),
        ({"random_teacher": False, "signal": {8: 0.2, 16: 0.3, 32: 0.4}}, BEST_OF, None),
        ({"best_of": 0.25}, BEST_OF, None),
        ({"difficulty": "size"}, "train.curriculum", "size"),
        ({"pieces": 400}, "warm_start.model.max_positions", 1024),
        ({"mean_pieces": 1000.0}, "warm_start.batch_size", 8),
        ({"action_bytes": 500}, "train.max_action_tokens", 64),
    ],
)
def test_each_choice_has_its_cause(changes, key, value):
    assert chosen(replace(SEEN, **changes)).get(key) == value


def test_few_tasks_make_larger_groups_as_far_as_that_is_free():
    """120 games: of 7 tasks in 2 batches 3 groups of 40; no size is changed that is given."""
    few = replace(SEEN, tasks=7)
    got = chosen(few, batches=2)
    assert got["train.num_generations"] == 40 and got["train.per_device_train_batch_size"] == 120
    assert chosen(few, batches=None)["train.num_generations"] == 8
    assert chosen(few, group=4)["train.per_device_train_batch_size"] == 28
    rare = replace(SEEN, tasks=3, signal={8: 0.0, 16: 0.0, 32: 0.0})
    assert chosen(rare)["train.per_device_train_batch_size"] == 510


@pytest.mark.parametrize(
    ("width", "rate", "warm_rate"),
    [(64, 4e-4, 1e-3), (576, 4e-4, 1e-3), (2304, 1e-4, 2.5e-4)],
)
def test_a_pretrained_model_gets_an_adapter_and_rates_by_its_width(width, rate, warm_rate):
    """At four times the width of 576 a quarter of the rate; 3000 / 50 = 60 games in 8 groups."""
    got = chosen(SEEN, width=width)
    assert got["train.learning_rate"] == pytest.approx(rate)
    assert got["warm_start.learning_rate"] == pytest.approx(warm_rate)
    assert got["model.lora.r"] == 32 and got["warm_start.source"] == "teacher"
    new = chosen(SEEN)
    ours = {"warm_start.tokenizer", "warm_start.model.heads", "train.beta"}
    ours |= {"train.min_signal_patience"}
    assert ours <= new.keys() and not ours & got.keys()
    same = {key for key in new.keys() & got.keys() if new[key] == got[key]}
    assert {BEST_OF, "train.num_generations", "train.max_action_tokens"} <= same
    assert got["train.per_device_train_batch_size"] == 64


@pytest.fixture
def pick(tmp_path, monkeypatch):
    """The game in a module of the working directory."""
    (tmp_path / "pick.py").write_text(GAME)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pick", raising=False)
    return "pick.PickEnv"


def test_a_probe_plays_the_teacher(pick):
    """Half of the tasks can be won, by a quarter of the actions: an eighth of all, and 90 % of the
    best of sixteen in one half. The lines repeat, and the size says how hard a task is."""
    env = make(pick, trust=True)
    seen = probe(env, env.get_train_dataset(), 0)
    share = 1 / 2 * (1 - 0.75**16)
    assert seen.reward == pytest.approx(1 / 8, abs=0.06)
    assert seen.best_of == pytest.approx(share, abs=0.2)
    assert seen.signal[8] == pytest.approx(1 / 2 * (1 - 0.75**8), abs=0.2) and seen.new_lines == 0
    assert (seen.actions, seen.action_bytes, seen.random_teacher) == (1, 1, True)
    assert seen.difficulty == "size"


@pytest.mark.parametrize("train", [{}, {"train": "auto"}])
def test_a_run_of_two_lines_gets_settings_and_their_reasons(pick, train):
    notes = Notes()
    run = resolved(parse_config({"env": pick, "model": "tiny", **train}), notes)
    assert run.train.learning_rate == 1e-3 and run.train.curriculum == "size"
    assert run.warm_start.best_of == 16 and run.max_seconds == 300.0
    assert not run.is_auto and "preset" not in run.train.given
    assert set(run.chosen) == {note.split("=")[0] for note in notes.notes}
    assert parse_config(run.model_dump(exclude_unset=True)) == run


def test_what_is_given_stays(pick):
    given = {
        "train": {"preset": "auto", "num_generations": 6, "max_steps": 3},
        "warm_start": {"model": {"layers": 1}},
    }
    run = resolved(parse_config({"env": pick, "model": "tiny", **given}), Notes())
    assert run.train.num_generations == 6 and run.warm_start.model.layers == 1
    assert run.train.per_device_train_batch_size % 6 == 0
    assert run.max_seconds is None  # the steps end it
    assert run.train.given["min_signal_patience"] == 50
    whole = {"preset": "auto", "min_signal_share": 0.0}
    run = resolved(parse_config({"env": pick, "model": "tiny", "train": whole}), Notes())
    assert "min_signal_patience" not in run.train.given


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "no/where", "train": "auto"}, "config.json of model 'no/where' cannot be read"),
        ({"model": "tiny", "train": "quick"}, "train.preset must be 'auto'"),
    ],
)
def test_what_cannot_be_chosen_is_refused(pick, keys, message):
    with pytest.raises(ConfigError, match=message):
        resolved(parse_config({"env": pick, **keys}), Notes())


def test_what_is_given_to_a_pretrained_model_stays(pick, tmp_path):
    LlamaConfig(hidden_size=1152).save_pretrained(tmp_path / "model")

    def run(model=None, **sections):
        model = {"path": str(tmp_path / "model"), **(model or {})}
        return resolved(parse_config({"env": pick, "model": model, **sections}), Notes())

    assert not run(train={"max_steps": 3}).chosen
    assert not run(train="auto", model={"lora": None}).model.lora
    assert run(train="auto", model={"lora": {"r": 4}}).model.lora == LoraSettings(r=4)
    adapted = run(train="auto")
    assert adapted.model.lora == LoraSettings(r=32, lora_alpha=64.0)
    assert adapted.train.learning_rate == pytest.approx(2e-4)
    of_run = run(train="auto", warm_start={"source": "rollouts", "run": "runs/other"})
    assert of_run.warm_start.source == "rollouts" and of_run.warm_start.best_of == 1


def test_too_few_tasks_are_refused_before_anything_is_made(pick):
    """There are 64."""
    train = {"max_steps": 1, "per_device_train_batch_size": 130, "num_generations": 2}
    run = {"env": pick, "model": "tiny", "output_dir": "few", "train": {**train, "use_cpu": True}}
    with pytest.raises(ConfigError, match=r"takes 65 tasks .* has 64; larger groups"):
        train_run(parse_config(run))
    assert not Path("few").exists()


def test_a_run_of_two_lines_trains(pick, invoke):
    """With an end that is near: three updates, and a warm start of 20."""
    Path("pick.yaml").write_text(f"env: {pick}\nmodel: tiny\n")
    steps = ("train.preset=auto", "train.max_steps=3", "warm_start.steps=20", "eval.rollouts=8")
    ended = invoke("train", "pick.yaml", *steps, "threads=1", "train.use_cpu=true")
    assert ended.exit_code == 0, ended.output
    text = " ".join(ended.output.split())
    assert "train.learning_rate=0.001: as in the presets" in text
    assert "teacher" in text and "imitator" in text and "constant" in text
    assert "curriculum: size" in Path("runs/pick/config.yaml").read_text()
