"""Notes in training: their tokens carry loss, and a resumed run is the same run."""

import numpy as np

from agentsgym import register
from helpers import CountdownEnv

CONFIG = {"context_limit": 20, "reflection_tokens": 5}


class LengthEnv(CountdownEnv):
    """Three actions; each earns its length."""

    def _step_episode(self, session_id, state, action):
        played = [*state["played"], action]
        return {**state, "played": played}, float(len(action)), len(played) == 3, {}


def lengths(tokenizer):
    register("Length", LengthEnv)
    return LengthEnv(tokenizer, CONFIG)


def test_a_note_is_trained_with_the_advantage_of_what_comes_after(make_trainer, chat_tokenizer):
    trainer = make_trainer(lengths(chat_tokenizer), advantage_estimator="trial", max_steps=1)
    trainer.model.train()
    rollouts = trainer._prepare_inputs([])["rollouts"]
    signal = 0
    for one in rollouts:
        (episode,) = one.played.episodes
        assert [row.begins for row in one.played.rows] == ["episode", "note", "note"]
        assert [step.kind[0] for step in episode.steps] == ["a", "r", "a", "r", "a"]
        masks = [row.agent_token_mask for row in one.played.rows]
        assert [row.positions.tolist() for row in one.rows] == [
            np.flatnonzero(mask).tolist() for mask in masks
        ]
        values = {
            span.step: set(row.advantages[span.start : span.stop])
            for row in one.rows
            for span in row.spans
        }
        # A note earns nothing itself: it is worth what the next action and all after it earn.
        assert values[1] == values[2] and values[3] == values[4]
        signal += values[1] != {0.0}
    assert signal
