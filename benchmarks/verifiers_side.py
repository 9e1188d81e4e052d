"""verifiers playing the toy game with an instant client. Runs in its own virtual environment.

    python verifiers_side.py GAMES STEPS REPEATS [--tokens]

Prints one JSON object: steps, seconds of each repeat. Only rollouts are timed: no scoring, no
saving. With `--tokens` the client's responses carry token ids, which verifiers then keeps.
"""

import asyncio
import json
import logging
import sys
import time

import verifiers as vf
from datasets import Dataset
from verifiers.legacy.clients import Client
from verifiers.types import Response, ResponseMessage, ResponseTokens
from verifiers_game import ANSWER, LINE


class InstantClient(Client):
    """Answers at once, without any conversion of messages."""

    def __init__(self, tokens: bool) -> None:
        super().__init__(None)
        self.tokens = tokens

    async def get_response(self, prompt, model, sampling_args, tools=None, **kwargs):
        tokens = None
        if self.tokens:
            length = 12 + 20 * (len(prompt) // 2)
            tokens = ResponseTokens(
                prompt_ids=list(range(length)),
                prompt_mask=[0] * length,
                completion_ids=list(range(8)),
                completion_mask=[1] * 8,
                completion_logprobs=[-1.0] * 8,
            )
        message = ResponseMessage(
            content=ANSWER, finish_reason="stop", is_truncated=False, tokens=tokens
        )
        return Response(id="0", created=0, model=model, message=message)

    def setup_client(self, config):
        return None

    async def to_native_tool(self, tool): ...

    async def to_native_prompt(self, messages): ...

    async def get_native_response(self, *args, **kwargs): ...

    async def raise_from_native_response(self, response): ...

    async def from_native_response(self, response): ...

    async def close(self): ...


class TalkEnv(vf.MultiTurnEnv):
    """Says a line before each action and counts."""

    async def setup_state(self, state):
        state["step"] = 0
        return state

    async def env_response(self, messages, state, **kwargs):
        state["step"] += 1
        return [{"role": "user", "content": LINE.format(state["step"])}]


async def play(env: TalkEnv, games: int, client: InstantClient) -> list:
    inputs = [
        {
            "prompt": [{"role": "user", "content": LINE.format(0)}],
            "example_id": i,
            "answer": "",
            "info": {},
        }
        for i in range(games)
    ]
    return await asyncio.gather(*(env.rollout(i, client, "none", {}) for i in inputs))


def main() -> None:
    games, steps, repeats = map(int, sys.argv[1:4])
    logging.disable(logging.WARNING)
    dataset = Dataset.from_list([{"question": "", "answer": ""}])
    env = TalkEnv(max_turns=steps, dataset=dataset, rubric=vf.Rubric())
    client = InstantClient("--tokens" in sys.argv)
    asyncio.run(play(env, 2, client))
    seconds = []
    played = 0
    for _ in range(repeats):
        start = time.perf_counter()
        states = asyncio.run(play(env, games, client))
        seconds.append(time.perf_counter() - start)
        errors = [state["error"] for state in states if state["error"]]
        if errors:
            sys.exit(f"verifiers failed: {errors[0]!r}")
        played = sum(len(state["trajectory"]) for state in states)
    print(json.dumps({"steps": played, "seconds": seconds}))


if __name__ == "__main__":
    main()
