"""The trainer's numbers for a sample of rollouts: what is recorded, when, and that training is the
same with and without it."""

import copy

import pytest
import torch

from agentsgym.runs.files import (
    RunDirectory,
    TokenRecordWriter,
    drop_token_records_from,
    read_token_records,
)
from agentsgym.runs.files.directory import DamagedFile
from agentsgym.types.rows import StepNumbers, TokenRecord


class Kept:
    """A sink that keeps what it receives."""

    def __init__(self):
        self.calls = []

    def __call__(self, given, info):
        self.calls.append((list(given), dict(info)))


@pytest.mark.parametrize(("settings", "steps"), [({}, [0, 1]), ({"num_iterations": 2}, [0])])
def test_the_numbers_are_those_of_the_loss(make_trainer, settings, steps):
    records = Kept()
    trainer = make_trainer(token_sink=records, token_records=3, max_steps=2, **settings)
    trainer.train()
    assert [info["step"] for _, info in records.calls] == steps
    rollouts = {r.session_id: r for r in trainer.played.steps()[0]}
    written, _ = records.calls[0]
    assert len(written) == 3
    for record in written:
        for row in rollouts[record.session_id].rows:
            for span in row.spans:
                numbers = record.steps[span.key]
                sampled = row.logprobs[span.start : span.stop]
                assert numbers.logprobs == pytest.approx(sampled, abs=1e-4)
                assert all(entropy > 0 for entropy in numbers.entropies)
    ratios = [v for record in written for n in record.steps.values() for v in n.ratios]
    if settings:  # after the first update, the policy is another one
        assert max(abs(ratio - 1) for ratio in ratios) > 1e-6
    else:
        assert ratios == pytest.approx([1.0] * len(ratios), abs=1e-6)


def test_training_is_the_same_with_and_without_records(make_trainer, tiny_llama):
    weights = []
    for number in (0, 8):
        trainer = make_trainer(
            model=copy.deepcopy(tiny_llama), token_sink=Kept(), token_records=number, max_steps=2
        )
        trainer.train()
        weights.append({n: p.detach().clone() for n, p in trainer.model.named_parameters()})
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def record_of(session="0-1"):
    numbers = StepNumbers((-0.5, float("nan")), (1.0, 1.25), None)
    return TokenRecord(session, {(0, 1): numbers})


def test_records_are_read_as_they_were_written(tmp_path):
    TokenRecordWriter(tmp_path)([record_of()], {"step": 7, "rank": 1})
    ((step, path),) = RunDirectory(tmp_path).token_record_files()
    (record,) = read_token_records(path)
    assert step == 7 and record.session_id == "0-1"
    numbers = record.steps[0, 1]
    assert numbers.ratios == (1.0, 1.25) and numbers.entropies is None
    assert numbers.logprobs[0] == -0.5 and numbers.logprobs[1] != numbers.logprobs[1]


def test_a_resumed_run_drops_the_records_that_it_makes_again(tmp_path):
    for step in (3, 4, 5):
        TokenRecordWriter(tmp_path)([record_of()], {"step": step})
    drop_token_records_from(tmp_path, 4)
    assert [step for step, _ in RunDirectory(tmp_path).token_record_files()] == [3]


def test_a_damaged_file_is_named(tmp_path):
    TokenRecordWriter(tmp_path)([record_of()], {"step": 1})
    ((_, path),) = RunDirectory(tmp_path).token_record_files()
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedFile, match=r"000001\.parquet is damaged"):
        list(read_token_records(path))
