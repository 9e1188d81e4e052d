"""Exports of stored rollouts, and the one step that TRL's trainers really take on them."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import load_dataset, load_from_disk
from typer.testing import CliRunner

from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent
from agentsgym.cli.app import app
from agentsgym.envs import ConfigError
from agentsgym.generation import EmbeddedEngine
from agentsgym.report.export.write import FORMATS, Filters, write_dataset
from agentsgym.report.stored import Source
from agentsgym.runs.files import RolloutWriter, read_rollouts
from agentsgym.runs.players import write_whole
from agentsgym.types.tool_actions import calling
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML, CountdownEnv, DigitEnv, build_tokenizer, random_llama
from of_rows import drawn, redrawn
from rollout.doubles import SumEnv
from viewer_runs import game, make_rollout, make_run


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(CHATML)


@pytest.fixture(scope="module")
def model_dir(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    random_llama(tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def run(tokenizer, tmp_path_factory):
    """Games that a random model played: two tasks, eight rollouts each."""
    root = tmp_path_factory.mktemp("run")
    agent = DirectOutputAgent(
        EmbeddedEngine(random_llama(tokenizer).eval(), tokenizer), SamplingParams(max_tokens=6)
    )
    batch = DigitEnv(tokenizer).run_trial([{"seed": k} for k in range(2)], agent, 8)
    RolloutWriter(root)(batch.rollouts, {"phase": "train", "step": 3, "advantages": None})
    return root


def exported(run, name, path, **filters):
    counts = write_dataset(Source(run), FORMATS[name], path, Filters(**filters))
    return counts, load_from_disk(str(path))


def invoke_export(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def played(root, tokenizer, *games, phase="train", step=0, **config):
    """A run directory with one group: a game per script of the CountdownEnv."""
    env = CountdownEnv(tokenizer, config)
    rollouts = []
    for index, (lines, rewards) in enumerate(games):
        (one,) = env.run_trial([{"rewards": rewards}], ScriptedAgent(lines)).rollouts
        rollouts.append(replace(one, index=index, group=0))
    RolloutWriter(root)(rollouts, {"phase": phase, "step": step, "advantages": None})
    return root


# -- what is in them ----------------------------------------------------------------------------


def test_tokens_are_the_stored_rows_with_their_masks(run, tmp_path):
    counts, rows = exported(run, "tokens", tmp_path / "out")
    stored = [row for rollout in read_rollouts(run) for row in rollout.rows]
    assert counts.examples == len(rows) == len(stored) == 16
    assert list(rows["input_ids"]) == [row.token_ids.tolist() for row in stored]
    assert list(rows["assistant_masks"]) == [row.agent_token_mask.tolist() for row in stored]
    assert counts.longest == max(len(row.token_ids) for row in stored)
    assert rows["training_step"] == [3] * 16 and set(rows["env"]) == {DigitEnv().class_path}
    assert json.loads(rows["task"][8]) == {"seed": 1}


def test_conversations_end_with_the_agent_and_name_their_actions(tmp_path, tokenizer):
    played(tmp_path / "run", tokenizer, (["bad", "Is it red?"], [0.0, 1.0]))
    _, rows = exported(tmp_path / "run", "messages", tmp_path / "out")
    (one,) = rows
    messages = [(m["role"], m["content"]) for m in one["messages"]]
    assert messages == [
        ("user", "Is it an animal?"),
        ("assistant", "bad"),
        ("user", "The number is 1"),
        ("assistant", "Is it red?"),
    ]
    assert one["rewards"] == [0.0, 1.0] and one["malformed"] == [True, False]


def test_a_conversation_over_several_episodes_is_one_example(tmp_path, tokenizer):
    games = ((["a", "b"], [0.0, 1.0]),)
    for carry, lengths in (("full", [8]), ("none", [4, 4])):
        root = played(
            tmp_path / carry, tokenizer, *games, episodes_per_trial=2, free_shots=1, carry=carry
        )
        _, rows = exported(root, "messages", tmp_path / f"{carry}-out")
        assert [len(m) for m in rows["messages"]] == lengths


def test_a_pair_is_the_first_action_in_which_two_games_differ(tmp_path, tokenizer):
    root = played(
        tmp_path / "run",
        tokenizer,
        (["a", "x"], [0.0, 0.0]),
        (["a", "y"], [0.0, 1.0]),
        (["b", "z"], [0.0, 0.5]),
        (["c", "z"], [0.0, 0.5]),
    )
    _, rows = exported(root, "preference", tmp_path / "pairs")
    (pair,) = rows  # of the other two, none has more reward
    assert [m["content"] for m in pair["prompt"]] == ["Is it an animal?", "a", "The number is 1"]
    assert pair["chosen"] == [{"role": "assistant", "content": "y"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "x"}]
    assert (pair["reward"], pair["rejected_reward"]) == (1.0, 0.0)


def test_conversations_with_calls_of_tools_are_rendered_as_they_were_played(tmp_path):
    tokenizer = tokenizer_for(template("qwen2_5"), "<|im_end|>")
    both = "\n".join([calling("price", item="tea"), calling("price", item="milk")])
    env, scripts = SumEnv(tokenizer), ([both, "4"], ["4"])
    games = [env.run_trial([{}], ScriptedAgent(script)).rollouts[0] for script in scripts]
    RolloutWriter(tmp_path)(games, {"phase": "train", "step": 0, "advantages": None})
    _, rows = exported(tmp_path, "messages", tmp_path / "out")
    for row, game_ in zip(rows, games, strict=True):
        tools = json.loads(row["tools"])
        shown = tokenizer.apply_chat_template(row["messages"], tools=tools, tokenize=False)
        assert shown == tokenizer.decode(game_.rows[0].token_ids) + "<|im_end|>\n"
    assert len(rows[0]["messages"][1]["tool_calls"]) == 2


def test_filters(tmp_path, plain_tokenizer):
    run = make_run(tmp_path / "run", plain_tokenizer)
    count = {
        "all": (24, {}),
        "step": (8, {"steps": (1, 1)}),
        "steps": (16, {"steps": (1, 9)}),
        "reward": (8, {"min_reward": 1.0, "steps": (0, 2)}),
        "won": (8, {"won": True}),
        "best": (6, {"best": 1}),
        "before": (6, {"phases": ("before",)}),
        "two": (12, {"phases": ("before", "after")}),
    }
    for name, (expected, filters) in count.items():
        _, rows = exported(run, "tokens", tmp_path / name, **filters)
        assert len(rows) == expected, name
    _, best = exported(run, "tokens", tmp_path / "b", best=1)
    assert best["reward"] == [1.0] * 6
    for filters, problem in (
        ({"min_reward": 2.0}, "none of the 24 rollouts"),
        ({"phases": ("eval",)}, "no rollouts of the phase eval; the phases there: before, train"),
        ({"steps": (7, 9)}, "from step 7 to 9"),
    ):
        with pytest.raises(ConfigError, match=problem):
            exported(run, "tokens", tmp_path / "none", **filters)
    assert not (tmp_path / "none").exists()


def test_failed_rollouts_and_ids_that_no_tokenizer_has_are_left_out(tmp_path, plain_tokenizer):
    good, failed, strange = (
        make_rollout(plain_tokenizer, 0, n, [game("w", True)], error="x" if n == 1 else None)
        for n in range(3)
    )
    row = strange.rows[0]
    strange = redrawn(strange, rows=[drawn(row, ids=[-1, *row.token_ids[1:]])])
    RolloutWriter(tmp_path / "run")(
        [good, failed, strange], {"phase": "train", "step": 0, "advantages": None}
    )
    _, rows = exported(tmp_path / "run", "tokens", tmp_path / "out")
    assert rows["rollout"] == [0]


def test_files_of_each_kind_hold_the_same(run, tmp_path):
    _, folder = exported(run, "messages", tmp_path / "folder")
    for name, kind in (("a.parquet", "parquet"), ("a.jsonl", "json")):
        write_dataset(Source(run), FORMATS["messages"], tmp_path / name)
        read = load_dataset(
            kind, data_files=str(tmp_path / name), split="train", cache_dir=str(tmp_path / "cache")
        )
        assert read.to_list() == folder.to_list()


def test_the_command(run, tmp_path):
    result = invoke_export(run, "--to", "tokens", "--out", tmp_path / "a", "--steps", "3")
    assert result.exit_code == 0 and "16 examples from 16 of 16 rollouts" in result.output
    for arguments, problem in (
        (["--to", "text", "--out", tmp_path / "b"], "--to must be one of messages"),
        (["--to", "tokens", "--out", tmp_path / "b", "--steps", "9-3"], "--steps must be"),
        (["--to", "tokens", "--out", tmp_path / "a"], "exists"),
    ):
        result = invoke_export(run, *arguments)
        assert result.exit_code == 2 and problem in result.output


def test_a_saved_evaluation_and_both_sides_of_a_comparison(run, tmp_path):
    rollouts = list(read_rollouts(run))
    for side in ("model", "vs"):
        write_whole(tmp_path / "eval" / side, rollouts)
    _, rows = exported(tmp_path / "eval" / "vs", "tokens", tmp_path / "out")
    assert len(rows) == 16 and set(rows["phase"]) == {"eval"}
    (tmp_path / "eval" / "comparison.json").write_text("{}")
    result = invoke_export(tmp_path / "eval", "--to", "tokens", "--out", tmp_path / "x")
    assert result.exit_code == 2 and "name " in result.output and "eval/vs" in result.output


# -- what TRL does with them --------------------------------------------------------------------


def one_step(trainer_class, config_class, model_dir, tokenizer, dataset, folder, **settings):
    """The trainer after one step on the whole dataset, and its first loss."""
    from transformers import AutoModelForCausalLM

    args = config_class(
        output_dir=str(folder),
        max_steps=1,
        per_device_train_batch_size=len(dataset),
        learning_rate=1e-3,
        use_cpu=True,
        report_to="none",
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        bf16=False,
        **settings,
    )
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer = trainer_class(
        model=model, args=args, train_dataset=dataset, processing_class=tokenizer
    )
    trainer.train()
    moved = [n for n, v in trainer.model.named_parameters() if not torch.equal(v, before[n])]
    assert moved
    return trainer, trainer.state.log_history[0]["loss"]


def test_the_loss_of_sft_covers_exactly_the_tokens_that_the_agent_sampled(
    run, model_dir, tokenizer, tmp_path
):
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    _, dataset = exported(run, "tokens", tmp_path / "out")
    trainer, loss = one_step(SFTTrainer, SFTConfig, model_dir, tokenizer, dataset, tmp_path / "sft")
    rows = [row for rollout in read_rollouts(run) for row in rollout.rows]
    sampled = sum(row.agent_tokens for row in rows)
    assert sum(len(r.token_ids) for r in rows) > sampled > 32
    labels = [
        [label for label in example["labels"] if label != -100] for example in trainer.train_dataset
    ]
    actions = [[i for i, m in zip(r.token_ids, r.agent_token_mask) if m] for r in rows]
    assert sorted(labels) == sorted(actions)
    # The mean of -log p over these tokens, from one forward pass per row. The sampler's own
    # log-probabilities, stored with the rows, are those of the same weights.
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    total = 0.0
    for row in rows:
        with torch.no_grad():
            logps = model(torch.tensor([row.token_ids.tolist()])).logits[0].log_softmax(-1)
        for place, m in enumerate(row.agent_token_mask):
            total -= m * float(logps[place - 1, row.token_ids[place]])
    assert loss == pytest.approx(total / sampled, abs=1e-4)
    stored = -sum(sum(row.logprobs) for row in rows) / sampled
    assert loss == pytest.approx(stored, abs=1e-4)


def test_dpo_takes_a_step_on_pairs_whose_loss_is_log_two_at_first(
    run, model_dir, tokenizer, tmp_path
):
    """Before the first update policy and reference are equal, so the loss is -log σ(0)."""
    from trl import DPOConfig, DPOTrainer

    _, dataset = exported(run, "preference", tmp_path / "out")
    trainer, loss = one_step(DPOTrainer, DPOConfig, model_dir, tokenizer, dataset, tmp_path / "dpo")
    assert loss == pytest.approx(0.6931, abs=1e-3)
    for example, pair in zip(trainer.train_dataset, dataset, strict=True):
        for side in ("chosen", "rejected"):
            assert tokenizer.decode(example[f"{side}_ids"]).startswith(pair[side][0]["content"])
    assert all(a > b for a, b in zip(dataset["reward"], dataset["rejected_reward"]))


@pytest.mark.slow
def test_the_script_of_the_page_runs(run, model_dir, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/viewer.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model_dir, "runs/quickstart/model")
    write_dataset(Source(run), FORMATS["tokens"], Path("data/won"), Filters(won=True))
    names = {}
    exec(script, names)
    assert names["trainer"].state.global_step == 1
