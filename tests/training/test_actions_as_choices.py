"""The probabilities of other actions that the trainer computes for an estimator that reads them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from agentsgym.credit import credit_steps, table_of
from agentsgym.envs import task_dataset
from agentsgym.training.advantages import ChoiceScorer
from agentsgym.training.loss.logprobs import Scorer
from helpers import CountdownEnv
from training import reference
from training.cells import trial_of


@pytest.fixture
def trainer(make_trainer, tiny_llama, chat_tokenizer):
    tiny_llama.double()
    env = CountdownEnv(chat_tokenizer, {"episodes_per_trial": 2})
    tasks = task_dataset(env, [{"rewards": [1.0]}] * 4)
    return make_trainer(env=env, dataset=tasks, advantage_estimator="trial_cv", temperature=0.5)


def test_choices_are_the_policys_probabilities_of_repeated_actions(trainer):
    rollouts = [
        trial_of(0, (7, 8), (7, 9), (20,), free_shots=1),
        trial_of(1, (7, 8), (7, 9, 3), (30,), free_shots=1),
        trial_of(2, (7, 8), (7, 9), (7, 9), free_shots=1, failed=True),
    ]
    one, other, failed = trainer.choices.choices_of(rollouts, trainer.model)
    # (7, 8) repeats, in free shots; (7, 9) was taken twice only with a failed rollout.
    assert failed == {}
    assert [sorted(chances) for chances in one[1, 0]] == [[7], [8]]
    assert [sorted(chances) for chances in other[1, 0]] == [[7], [8]]
    assert [sorted(chances) for chances in one[2, 0]] == [[7]]
    assert (0, 0) not in one
    ids = list(rollouts[1].rows[0].token_ids)
    for position, chances in zip((6, 7), other[1, 0], strict=True):
        for token, chance in chances.items():
            logps, _ = reference.log_probabilities(
                trainer.model, [*ids[:position], token], temperature=0.5
            )
            assert chance == pytest.approx(float(logps[-1].detach().exp()), rel=1e-9)


def test_without_repeated_actions_the_model_is_not_asked_and_credit_is_that_of_trial(trainer):
    rollouts = [trial_of(0, (7, 8), (9,)), trial_of(1, (7, 9), (10,)), trial_of(2, (11,), (12,))]
    choices = trainer.choices.choices_of(rollouts, None)
    assert choices == [{}, {}, {}]
    plain = credit_steps(table_of(rollouts), "trial").value
    assert (credit_steps(table_of(rollouts, choices), "trial_cv").value == plain).all()


class Together:
    """Two ranks as two threads: what one gathers is joined with what the other does."""

    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=60)
        self.values = {}

    def rank(self, index):
        return SimpleNamespace(index=index, number=2, gather=partial(self.gather, index))

    def gather(self, index, values):
        self.values[index] = values
        self.barrier.wait()
        joined = self.values[0] + self.values[1]
        self.barrier.wait()
        return joined


def test_a_rank_whose_groups_repeat_nothing_makes_the_passes_of_the_others(trainer):
    rollouts = [
        trial_of(0, (7, 8), (7, 9)),
        trial_of(1, (7, 8), (11,)),
        trial_of(2, (12,), failed=True),
        trial_of(3, (13,)),
    ]
    expected = trainer.choices.choices_of(rollouts[:2], trainer.model)
    assert expected[0] and expected[1]
    together = Together()
    split = [rollouts[:2], rollouts[2:]]
    passes = [0, 0]
    one_at_a_time = threading.Lock()

    class LockedScorer(Scorer):
        def _can_share(self, model):  # it tries the model's attention
            with one_at_a_time:
                return super()._can_share(model)

        def _read(self, *given):
            with one_at_a_time:
                passes[self.ranks.index] += 1
                return super()._read(*given)

    def of_rank(index):
        ranks = together.rank(index)
        scorer = LockedScorer(
            trainer.accelerator, ranks, trainer.tokenizer.pad_token_id, trainer.args
        )
        return ChoiceScorer(scorer, ranks, 0.5).choices_of(split[index], trainer.model)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(of_rank, range(2)))
    assert passes[0] == passes[1] > 0 and results[1] == [{}, {}]
    for one, other in zip(results[0], expected, strict=True):
        assert one.keys() == other.keys()
        for key, chances in one.items():
            for ours, whole in zip(chances, other[key], strict=True):
                assert ours == pytest.approx(whole, rel=1e-9)
