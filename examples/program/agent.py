"""An agent with the `openai` client that plays Twenty Questions against a simulator of its own.

`run` is all that agentsgym needs; nothing in it knows that a model is being trained.
"""

from functools import cache

import openai

from agentsgym import TwentyQuestionsEnv
from agentsgym.rollout.stepping import SteppedTrial

HTTP = openai.DefaultHttpxClient()  # one for all games: making it takes longer than a game
GAME = {
    "table": "quickstart",
    "split": "hints",
    "hints": 2,
    "max_steps_per_episode": 8,
    "answer_style": "echo",
    "explain_actions": False,
    "information_reward": 0.3,
}


@cache
def simulator():
    return TwentyQuestionsEnv(None, GAME)


def run(task, client):
    """Play one game; the reward of each question and guess."""
    api = openai.OpenAI(base_url=client.base_url, api_key=client.api_key, http_client=HTTP)
    rewards = []
    with SteppedTrial(simulator(), task) as game:
        while not game.over:
            answer = api.chat.completions.create(model=client.model, messages=game.messages)
            rewards.append(game.act(answer.choices[0].message.content))
        return {"reward": rewards, "win": game.facts.win}
