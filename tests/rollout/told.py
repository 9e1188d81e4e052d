"""An environment that tells what it was told, in a module of its own that imports no torch."""

from dataclasses import astuple

from helpers import CountdownEnv


class ToldEnv(CountdownEnv):
    """Keeps what each episode is told in its state, and says it in the first prompt."""

    def _begin_episode(self, session_id, task_data, trial):
        last = trial.last_state
        told = astuple(trial.without_state())
        return {
            **self._initialize_episode(session_id, task_data),
            "told": (*told, trial.scored, last and last["played"]),
        }

    def _format_prompt(self, state, step):
        return repr(state["told"]) if step == 0 else str(step)
