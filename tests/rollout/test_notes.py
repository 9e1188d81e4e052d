"""`context_limit`: an episode goes on from the agent's note where its conversation is full."""

import pytest

from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent, credit, register
from agentsgym.envs import ConfigError
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.report.export.write import conversations
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.types.reward_placement import per_token_rewards
from helpers import CHATML, DROPS_THOUGHT, CountdownEnv, build_tokenizer

REQUEST = "This conversation is full. Write down briefly what you need to know to go on."
PLAIN, CHAT, DROPS = (build_tokenizer(template) for template in (None, CHATML, DROPS_THOUGHT))
THREE = {"rewards": [1.0, 2.0, 3.0]}
ACTIONS = ["a", "b", "Can it fly?", "c"]


class PaidEnv(CountdownEnv):
    """Three actions, each a number and worth as much."""

    def _step_episode(self, session_id, state, action):
        played = [*state["played"], action]
        return {**state, "played": played}, float(action), len(played) == 3, {}


def length(*texts):
    return sum(len(PLAIN.encode(text, add_special_tokens=False)) for text in texts)


TWO_TURNS = length("Is it an animal?", "a", "The number is 1")
"""The limit at which the third prompt does not fit."""


def played(config, actions=ACTIONS, task=THREE, tokenizer=PLAIN, env=CountdownEnv, **options):
    batch = env(tokenizer, config).run_trial([task], ScriptedAgent(actions), **options)
    assert not any(rollout.failed for rollout in batch.rollouts), batch.rollouts[0].error
    return batch


def test_an_episode_goes_on_from_a_note_in_a_new_row():
    batch = played({"context_limit": TWO_TURNS, "max_steps_per_episode": 3}, return_all_steps=True)
    (rollout,) = batch.rollouts
    (episode,) = rollout.episodes
    assert [(s.index, s.kind, s.action) for s in episode.steps] == [
        (0, "action", "a"), (1, "action", "b"), (2, "reflection", "Can it fly?"), (3, "action", "c")
    ]  # fmt: skip
    assert (episode.stop_reason, episode.reward, episode.win) == ("done", 6.0, True)
    first, second = rollout.rows
    opening = "Is it an animal?\n\nYour notes: Can it fly?\n\nThe number is 2"
    texts = [
        ["Is it an animal?", "a", "The number is 1", "b", REQUEST, "Can it fly?"],
        [opening, "c"],
    ]
    for row, parts, begins in zip((first, second), texts, ("episode", "note"), strict=True):
        assert row.begins == begins
        assert PLAIN.decode(row.token_ids) == "".join(parts)
        mask = [k % 2 for k, part in enumerate(parts) for _ in range(length(part))]
        assert row.agent_token_mask.tolist() == mask
    assert [s.key for s in first.spans] == [(0, 0), (0, 1), (0, 2)]
    assert [s.key for s in second.spans] == [(0, 3)]
    placed = [
        rewards[s.start : s.stop].sum()
        for row, rewards in zip(rollout.rows, per_token_rewards(rollout), strict=True)
        for s in row.spans
    ]
    assert placed == pytest.approx([1.0, 2.0, 0.0, 3.0])
    shown = [[m["content"] for m in messages] for messages, _ in rollout.conversations()]
    assert shown == texts
    assert [[m["content"] for m in messages] for messages in batch["messages"][0]] == [
        texts[0][:2], texts[0][:4], texts[0], texts[1]
    ]  # fmt: skip
    assert [m["content"] for m in batch["final_completion_messages"][0]] == texts[1]
    assert [len(one.spoken) for one in conversations(rollout)] == [3, 1]


def test_one_token_less_and_the_note_comes_a_turn_earlier():
    (rollout,) = played({"context_limit": TWO_TURNS - 1}, ["a", "one", "b", "two", "c"]).rollouts
    kinds = [step.kind[0] for step in rollout.episodes[0].steps]
    assert kinds == ["a", "r", "a", "r", "a"]
    # The notes of notes are not kept: each conversation shows the last.
    assert "Your notes: two\n\nThe number is 2" in PLAIN.decode(rollout.rows[2].token_ids)
    assert "one" not in PLAIN.decode(rollout.rows[2].token_ids)


def test_a_note_earns_what_comes_after_it():
    lines = iter(["1", "2", "note", "3", "1", "0", "note", "0"])
    batch = played(
        {"context_limit": TWO_TURNS}, lambda messages: next(lines), env=PaidEnv, num_rollouts=2
    )
    assert batch["final_rewards"] == [6.0, 1.0]

    def values(name, **options):
        rows = zip(batch.rows, credit.advantages(batch, name, **options), strict=True)
        return [float(a[s.start]) for row, a in rows for s in row.spans]

    # To go: 6, 5, 3, 3 and 1, 0, 0, 0. Before their notes they had earned 3 and 1.
    assert values("trial") == [5, 5, 3, 3, -5, -5, -3, -3]
    assert values("trial_cv") == values("trial")
    assert values("step_return") == [5, 5, 3, 3, -5, -5, -3, -3]
    assert values("rloo") == [5.0] * 4 + [-5.0] * 4
    assert values("grpo", scale_rewards="none") == [2.5] * 4 + [-2.5] * 4
    assert values("gigpo", step_weight=1.0)[2] == (5 + 3) / 2
    assert values("reward") == pytest.approx([1, 2 / 1, 0, 3, 1, 0, 0, 0])


def test_rewards_of_the_end_go_to_the_last_action():
    """The budget ends the episode after a note."""
    register("Countdown", CountdownEnv)
    env = CountdownEnv(PLAIN, {"context_limit": TWO_TURNS, "bonus": 10.0})
    trial = SteppedTrial(env, THREE)
    for text in ("a", "b", "note"):
        trial.act(text)
    rollout = trial.cut("cut")
    assert [step.reward for step in rollout.episodes[0].steps] == [1.0, 12.0, 0.0]
    assert len(rollout.rows) == 1 and len(rollout.conversations()) == 1


def test_all_rollouts_of_a_task_have_its_limit():
    env = CountdownEnv(PLAIN, {"context_limit": [30, 60]})
    limits = {seed: env.config.limit_for({"seed": seed}) for seed in range(50)}
    assert limits == {seed: env.config.limit_for({"seed": seed}) for seed in range(50)}
    assert set(limits.values()) <= set(range(30, 61)) and len(set(limits.values())) > 15
    batch = env.run_trial([{"rewards": [1.0] * 5}], ScriptedAgent(["a"]), num_rollouts=4)
    assert len({tuple(len(row.token_ids) for row in r.rows) for r in batch.rollouts}) == 1


@pytest.mark.parametrize("limit", [0, [5], [9, 5], [1, 2, 3], "400", 1.5])
def test_what_is_no_limit_is_refused(limit):
    with pytest.raises(ConfigError, match=r"env_config.context_limit"):
        CountdownEnv(None, {"context_limit": limit})


def test_without_a_tokenizer_four_characters_are_a_token():
    (rollout,) = played({"context_limit": 8}, tokenizer=None).rollouts
    assert [s.kind[0] for s in rollout.episodes[0].steps] == ["a", "a", "r", "a"]


def test_the_request_and_the_memory_are_the_environments():
    class Own(CountdownEnv):
        def _format_note_request(self, state, step):
            return f"Note after {step} of {len(state['played'])}."

        def _format_memory(self, reflection):
            return f"<{reflection}>"

    (rollout,) = played({"context_limit": TWO_TURNS, "system_prompt": "Play."}, env=Own).rollouts
    first, second, _ = (messages for messages, _ in rollout.conversations())
    assert first[-2]["content"] == "Note after 1 of 1."
    opening = "Is it an animal?\n\n<b>\n\nThe number is 1"
    assert [m["content"] for m in second[:2]] == ["Play.", opening]


def test_a_trial_that_is_one_conversation_goes_on_from_a_note_before_its_second_episode():
    config = {"context_limit": TWO_TURNS, "carry": "full", "episodes_per_trial": 2}
    task = {"rewards": [1.0, 2.0]}
    (rollout,) = played(config, ["a", "b", "note", "c", "later", "d"], task).rollouts
    first, second = rollout.episodes
    assert [s.kind[0] for s in first.steps] == ["a", "a"]
    assert [s.kind[0] for s in second.steps] == ["r", "a", "r", "a"] and second.continues
    assert [e.reward for e in rollout.episodes] == [3.0, 3.0]
    prompt = "The number is 2\nThe episode is over. Reward: 3.\n\nIs it an animal?"
    texts = [PLAIN.decode(row.token_ids) for row in rollout.rows]
    assert texts[1] == f"Your notes: note\n\n{prompt}c{REQUEST}later"
    assert texts[2] == f"{prompt}\n\nYour notes: later\n\nThe number is 1d"
    table = credit.table_of([rollout])
    assert table.counted.tolist() == [0.5, 1.0, 0.0, 0.5, 0.0, 1.0]


def test_an_engines_notes_have_their_own_cap_and_noise(tiny_llama):
    engine = EmbeddedEngine(tiny_llama, CHAT, capacity=4)
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=3))
    config = {"context_limit": 1, "reflection_tokens": 9, "max_steps_per_episode": 4}
    task = {"rewards": [1.0] * 4}
    batch, again = (
        CountdownEnv(CHAT, config).run_trial([task], agent, num_rollouts=3) for _ in range(2)
    )
    assert batch.rows == again.rows and not engine._caches.sessions
    notes = []
    for rollout in batch.rollouts:
        assert [row.begins for row in rollout.rows] == ["episode", "note", "note", "note"]
        assert len(rollout.episodes[0].actions) == 4
        for row in rollout.rows:
            for span in row.spans:
                note = rollout.episodes[0].steps[span.step].kind == "reflection"
                assert span.length <= (9 if note else 3)
                notes += [row.token_ids[span.start : span.stop].tolist()] if note else []
    assert max(map(len, notes)) > 3 and len(set(map(tuple, notes))) == len(notes)


def test_worker_processes_ask_for_the_same_notes():
    config = {"context_limit": TWO_TURNS}
    (here,) = played(config).rollouts
    (there,) = played({**config, "workers": 1}).rollouts
    assert there.rows == here.rows


def test_a_stepped_trial_says_where_a_conversation_begins():
    trial = SteppedTrial(CountdownEnv(PLAIN, {"context_limit": TWO_TURNS}), THREE)
    seen = []
    for text in ACTIONS:
        seen.append((trial.facts.asks_for, trial.facts.new_conversation, len(trial.new_messages)))
        trial.act(text)
    assert seen == [
        ("action", True, 1), ("action", False, 1), ("reflection", False, 1), ("action", True, 1)
    ]  # fmt: skip
    assert trial.over and [s.reward for s in trial.rollout.episodes[0].steps] == [1, 2, 0, 3]


@pytest.mark.parametrize("broken", ["_format_note_request", "_format_memory"])
def test_a_fault_at_a_note_keeps_the_steps(broken):
    env = CountdownEnv(PLAIN, {"context_limit": TWO_TURNS})
    setattr(env, broken, lambda *arguments: 1 / 0)
    (rollout,) = env.run_trial([THREE], ScriptedAgent(ACTIONS)).rollouts
    assert "ZeroDivisionError" in rollout.error
    kinds = [step.kind[0] for step in rollout.episodes[0].steps]
    assert kinds == ["a", "a", "r"][: 3 if broken == "_format_memory" else 2]
    assert [len(turns) for _, turns in rollout.conversations()] == [len(kinds)]
