"""Several environments in one training, and environment objects that are handed to it."""

import pytest
from datasets import concatenate_datasets

from agentsgym.envs import ConfigError, register
from agentsgym.envs.twenty_questions import CallableAnswerer
from agentsgym.evaluation import assess
from helpers import CountdownEnv, DigitEnv, questions_answered_by


class SilentEnv(CountdownEnv):
    """Tells no wins."""

    def _step_episode(self, session_id, state, action):
        state, reward, done, _ = super()._step_episode(session_id, state, action)
        return state, reward, done, {}


register("tests/Silent", SilentEnv)


def test_a_mixed_training_logs_each_environments_figures_as_an_evaluation_does(make_trainer):
    """A figure that only one of the environments has is over its rollouts."""
    silent, digits = SilentEnv().get_train_dataset(), DigitEnv().get_train_dataset()
    data = concatenate_datasets([digits.select(range(2)), silent.select(range(2))])
    trainer = make_trainer(
        dataset=data, eval_dataset=data, max_steps=1, per_device_train_batch_size=16
    )
    trainer.train()
    played = trainer.played.rollouts()
    logged = next(entry for entry in trainer.state.log_history if "reward" in entry)
    evaluated = assess(played)
    of_digits = [r for r in played if r.env_class_path == "Digit"]
    wins = [r.episodes[0].win or False for r in of_digits]
    assert len(wins) == 8 and sum(wins) > 0
    assert logged["win_rate"] == evaluated.win_rate == sum(wins) / len(wins)
    assert logged["reward"] == pytest.approx(evaluated.reward)
    assert logged["steps"] == pytest.approx(evaluated.mean_steps)
    letters = [s.info["metrics"]["letters"] for r in of_digits for s in r.episodes[0].steps]
    assert logged["letters"] == pytest.approx(sum(letters) / len(letters))
    for name in ("Digit", "tests/Silent"):
        mine = [r.final_reward for r in played if r.env_class_path == name]
        assert logged[f"env/{name}/reward"] == pytest.approx(sum(mine) / len(mine))
    assert logged["env/Digit/letters"] == logged["letters"]
    assert not {"env/tests/Silent/letters", "env/tests/Silent/win_rate"} & set(logged)
    assert {"eval_env/Digit/reward", "eval_env/tests/Silent/reward"} <= set(trainer.evaluate())


def test_an_environment_object_plays_its_rows_in_training(make_trainer):
    no = CallableAnswerer(lambda secret, question, history: "no")
    env = questions_answered_by(no, {"max_steps_per_episode": 2})
    data = env.get_train_dataset().select(range(4))
    with pytest.raises(ConfigError, match="Answered cannot be made"):
        make_trainer(dataset=data)
    trainer = make_trainer(dataset=data, envs=[env], max_steps=1)
    trainer.train()
    played = trainer.played.rollouts()
    answers = [s.info.get("answer") for r in played for s in r.episodes[0].steps]
    assert set(answers) <= {"No", None} and "No" in answers
    assert env.tokenizer is None and not any(r.failed for r in played)
