"""Dataset rows: what is wrong with them is said before anything is played."""

import pytest
from datasets import Dataset

import agentsgym
from agentsgym import EnvPool, ScriptedAgent, TwentyQuestionsEnv, task_dataset
from agentsgym.envs import check_row, check_rows
from helpers import CountdownEnv

APPLE = {"solution": "apple", "seed": 0}


def row(**changes):
    good = {"env_class_path": "TwentyQuestions", "env_config": {"hints": 2}, "task_data": APPLE}
    return good | changes


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


BAD_ROWS = [
    (["TwentyQuestions", {}, {}], "a row is a dict with env_class_path, env_config, task_data"),
    (None, "got None"),
    ({"env_config": {}, "task_data": {}}, "'env_class_path' is missing"),
    (row(env_config=None), "'env_config' must be a dict, got None"),
    (row(task_data='{"solution": "apple"}'), "make it datasets.Json()"),
    (row(env_class_path="Nope"), "no environment is registered as 'Nope'"),
    (row(env_class_path="os.path"), "runs its code"),
    (row(env_class_path="os\x08.path"), "no dotted path"),
    (row(env_config={"hint": 1}), "unknown key 'env_config.hint'"),
    (row(env_config={"hints": None}), "the keys of other rows become None"),
    (row(env_config={"hints": nested(20_000)}), "must hold plain values under names"),
    (row(env_config={"hints": {1, 2}}), "env_config.hints must be an integer"),
    (row(task_data={}), "task_data needs a 'solution'"),
    (row(task_data={"solution": "apple", "seed": "x"}), "task_data['seed'] must be an int"),
]


@pytest.mark.parametrize(("bad", "text"), BAD_ROWS, ids=[text[:30] for _, text in BAD_ROWS])
def test_every_bad_row_gets_a_sentence_with_its_number(bad, text):
    problems = check_rows([row(), row(), bad, row(), bad], EnvPool())
    assert len(problems) == 1 and text in problems[0]
    assert problems[0].startswith("row 2 (and 1 more): ") and len(problems[0]) < 1200


def test_good_rows_have_no_problem_and_each_environment_is_made_once(monkeypatch):
    made = []
    init = TwentyQuestionsEnv.__init__
    monkeypatch.setattr(
        TwentyQuestionsEnv, "__init__", lambda self, *a: (made.append(a), init(self, *a))[1]
    )
    data = task_dataset(agentsgym.make("TwentyQuestions"), [APPLE] * 50)
    made.clear()
    assert check_rows(data, EnvPool()) == [] and len(made) == 1


def test_rows_that_know_only_length_and_index_are_checked():
    class MapStyle:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return [row(), row(task_data={"solution": ""})][index % 2]

    assert [problem[:5] for problem in check_rows(MapStyle(), EnvPool())] == ["row 1"]


def test_struct_columns_that_mix_environments_are_named():
    """What `Dataset.from_list` makes of two environments' rows."""
    bandit = {"env_class_path": "Bandit", "env_config": {"arms": 2}, "task_data": {"seed": 0}}
    problems = check_rows(Dataset.from_list([row(), bandit]), EnvPool())
    assert len(problems) == 2 and all("datasets.Json()" in problem for problem in problems)


def test_a_single_bad_row_is_refused_with_its_number():
    with pytest.raises(ValueError, match="row 7: 'task_data' must be a dict, got 3"):
        check_row(row(task_data=3), 7)


# -- objects that are handed over ------------------------------------------------------------------


@pytest.fixture
def own():
    return TwentyQuestionsEnv(None, {"hints": 1})


def test_rows_are_played_by_the_object_that_was_handed_over(own):
    pool = EnvPool(envs=[own])
    for path in (
        "TwentyQuestions",
        "agentsgym.envs.TwentyQuestions",
        "agentsgym.envs.twenty_questions.env.TwentyQuestionsEnv",
    ):
        assert pool.get(row(env_class_path=path, env_config={"hints": 1})) is own
    assert pool.get(row()) is not own
    assert pool.get(row(env_class_path="Bandit", env_config={}, task_data={})).name == "Bandit"
    assert pool.names == {"TwentyQuestions", "Bandit"}


def test_an_object_gets_the_tokenizer_and_stays_as_it_was(own, plain_tokenizer):
    pool = EnvPool(plain_tokenizer, envs=[own])
    played = pool.get(task_dataset(own, [APPLE])[0])
    assert own.tokenizer is None and own.codec is None
    assert played.tokenizer is plain_tokenizer and played.answerer is own.answerer
    assert played.active_states is not own.active_states
    batch = played.run_trial([APPLE], ScriptedAgent(["Is it an animal?"]))
    assert batch["full_token_ids"][0] and not own.active_states


def test_two_objects_for_the_same_rows_are_refused(own):
    with pytest.raises(ValueError, match="envs holds two TwentyQuestions"):
        EnvPool(envs=[own, TwentyQuestionsEnv(None, {"hints": 1})])
    with pytest.raises(TypeError, match="envs must contain environment objects"):
        EnvPool(envs=[CountdownEnv])
