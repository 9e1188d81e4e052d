"""Two processes on CPU (gloo, started by `accelerate launch`) against one, on the same rollouts.

Each has two groups of 4 rollouts; episodes last one to three steps, so that rows and forward chunks
differ between them, and one rollout fails.
"""

import pytest
import torch

from training import learner, reference
from training.cells import NORM, Cell
from training.two import run_two


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What the two processes wrote, rank by rank."""
    return run_two("training.learner", tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def one(tmp_path_factory, chat_tokenizer):
    """The same by this process alone."""
    return learner.everything(chat_tokenizer, tmp_path_factory.mktemp("one"), 1)


def apart(first, second):
    return float((first - second).norm() / second.norm())


def test_the_same_rollouts_are_played(two, one):
    first, second = (set(rank["played"]) for rank in two)
    assert not first & second
    assert ({g for g, _ in first}, {g for g, _ in second}) == ({0, 1}, {2, 3})  # whole groups
    assert two[0]["played"] | two[1]["played"] == one["played"]
    assert sum(failed for _, failed, _ in one["played"].values()) >= 1
    tokens = [sum(map(len, ids)) for rank in two for ids, _, _ in rank["played"].values()]
    assert len(set(tokens)) > 1


def test_gradients_and_weights_are_those_of_one_process(two, one):
    assert len(one["gradients"]) == 2
    for rank in two:
        for ours, theirs in zip(rank["gradients"], one["gradients"], strict=True):
            assert apart(ours, theirs) < 1e-5
        assert apart(rank["weights"], one["weights"]) < 1e-7
    assert torch.equal(two[0]["weights"], two[1]["weights"])


def test_they_are_also_when_sampling_is_a_generation_ahead(two, one):
    """On the same rollouts; each process has whole groups, and two steps are off-policy."""
    one, both = one["ahead"], [rank["ahead"] for rank in two]
    assert one["versions"] == [0] * 32 + [1] * 16
    assert all(rank["versions"] == [0] * 16 + [1] * 8 for rank in both)
    first, second = (rank["played"] for rank in both)
    assert not {group for group, _ in first} & {group for group, _ in second}
    assert first | second == one["played"]
    for rank in both:
        assert len(rank["gradients"]) == 3
        for ours, theirs in zip(rank["gradients"], one["gradients"], strict=True):
            assert apart(ours, theirs) < 1e-5
        assert apart(rank["weights"], one["weights"]) < 1e-7


@pytest.mark.parametrize(
    ("number", "loss", "scope", "train_on", "choosy"),
    [(k, *cell) for k, cell in enumerate(learner.CELLS)],
)
def test_gradient_truth_with_two_processes(
    two, one, chat_tokenizer, number, loss, scope, train_on, choosy
):
    model = learner.tiny_model(chat_tokenizer)
    cell = Cell(model, learner.ROLLOUTS, train_on=train_on, choosy=choosy)
    settings = reference.Loss(loss, scope, cap=2.0, norm=NORM, masks=learner.MASKS)
    _, truth = reference.gradient_of(model, cell.for_reference(), settings)
    assert apart(one["cells"][number], truth) < 1e-5
    for rank in two:
        assert apart(rank["cells"][number], truth) < 1e-5


def test_evaluation(two, one):
    assert not set(two[0]["evaluated"]) & set(two[1]["evaluated"])
    assert two[0]["evaluated"] | two[1]["evaluated"] == one["evaluated"]
    assert {task for task, _ in one["evaluated"]} == set(range(5))
    for rank in two:
        for name, value in one["metrics"].items():
            if name != "eval_runtime":
                assert rank["metrics"][name] == pytest.approx(value), name


def test_what_is_logged_is_of_all_processes(two, one):
    """The loss, and over all tokens the ratios and the entropy. Under accumulation the latter are
    means of micro-batches, whose tokens differ."""
    for number, (ours, theirs) in enumerate(zip(two[0]["logs"], one["logs"], strict=True)):
        names = {"loss", "grad_norm"} | (set(theirs) if number % 2 == 0 else set())
        assert {"clipped", "entropy", "sampler/ratio", "sampler/capped_rows"} <= set(ours)
        assert {"masked", "masked/icepop"} <= set(ours)
        # Rows of different processes share no prefix.
        assert ours["distinct_tokens"] >= theirs["distinct_tokens"]
        own = {n for n in names if n.startswith("time/")} | {"distinct_tokens", "tokens_read"}
        for name in names - own:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), (number, name)


def test_resuming_equals_no_interruption(two):
    for rank in two:
        whole, resumed, curriculum = rank["resumed"]
        assert torch.equal(whole, resumed)
        assert curriculum == two[0]["resumed"][2] and sum(curriculum["drawn"].values()) == 16


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("one rank", [("finished", 0.5)] * 2),
        ("all ranks", [("EveryRolloutFailed", "the answerer is down")] * 2),
        ("sink", [("OSError", "No space left"), ("OtherRankFailed", "rank 0 failed: OSError")]),
        ("ahead", [("OtherRankFailed", "rank 1 failed: Conn"), ("ConnectionError", "is down")]),
    ],
)
def test_a_fault_on_one_rank_leaves_none_waiting(two, fault, expected):
    for rank, (kind, message) in zip(two, expected, strict=True):
        assert rank["faults"][fault][0] == kind
        assert (
            message in rank["faults"][fault][1]
            if isinstance(message, str)
            else (rank["faults"][fault][1] == message)
        )


def test_deepspeed_steps_once_per_window(monkeypatch, tmp_path, chat_tokenizer):
    """DeepSpeed itself is not installed here: what is checked is when it would be told to step."""
    from accelerate.utils import DistributedType

    trainer = learner.make_trainer(
        chat_tokenizer, tmp_path, per_device_train_batch_size=12, max_tokens_per_forward=60
    )
    flags = []

    class Wrapped:
        def backward(self, loss, sync_gradients, scale_wrt_gas):
            flags.append((sync_gradients, scale_wrt_gas))
            loss.backward()

    trainer.model.train()
    trainer.accelerator.deepspeed_engine_wrapped = Wrapped()
    deepspeed = property(lambda _: DistributedType.DEEPSPEED)
    monkeypatch.setattr(type(trainer.accelerator), "distributed_type", deepspeed)
    trainer.training_step(trainer.model, [])
    assert len(flags) > 2
    assert flags == [(False, False)] * (len(flags) - 1) + [(True, False)]
