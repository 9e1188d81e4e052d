"""A program that plays through the endpoint against our own loop.

    python benchmarks/programs.py [--model tiny smollm2] [--client http openai] [--games N]

The same games are played with the same model (a) by `run_trial`, (b) by a program that makes each
action a call of `/v1/chat/completions`, with the standard library's HTTP client or with `openai`.
Both must read and sample as many tokens at every step, and nearly all of their rollouts must be
equal (rounding in batches of other sizes may change a token of a large model). One JSON line:
seconds of the program over seconds of our own loop, the median of rounds that alternate, the
milliseconds that a call adds, and the share of equal rollouts.
"""

import argparse
import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import common
import openai
import torch

from agentsgym import DirectOutputAgent
from agentsgym.envs.program.env import ProgramEnv
from agentsgym.envs.program.run import ClientSettings
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.types import RolloutBatch, SamplingParams

MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "tiny": common.tiny,
    "smollm2": lambda: common.smollm2(torch.float32),
}
TURNS = 6
LEAST_EQUAL = 0.9
_HERE = threading.local()
_OPENAI = openai.DefaultHttpxClient()


class HttpProgram(ProgramEnv):
    """Says the texts of a game one by one."""

    def run(self, task: dict[str, Any], client: ClientSettings) -> float:
        messages: list[dict[str, Any]] = []
        for text in task["texts"]:
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": self.answer(client, messages)})
        return common.reward_of(messages[-1]["content"])

    def answer(self, client: ClientSettings, messages: list[dict[str, Any]]) -> str:
        host = client.base_url.split("/")[2]
        connection = vars(_HERE).setdefault(host, http.client.HTTPConnection(host))
        body = json.dumps({"model": client.model, "messages": messages})
        headers = {"Authorization": f"Bearer {client.api_key}"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        choice = json.loads(connection.getresponse().read())["choices"][0]
        content: str = choice["message"]["content"]
        return content


class OpenAIProgram(HttpProgram):
    """The same with the openai client."""

    def answer(self, client: ClientSettings, messages: list[dict[str, Any]]) -> str:
        api = openai.OpenAI(base_url=client.base_url, api_key=client.api_key, http_client=_OPENAI)
        done = api.chat.completions.create(model=client.model, messages=messages)
        return str(done.choices[0].message.content)


CLIENTS = {"http": HttpProgram, "openai": OpenAIProgram}


def played(env: Any, agent: Any, games: Sequence[Sequence[str]]) -> tuple[RolloutBatch, float]:
    """The games, and the seconds that they took."""
    agent.engine.reset()
    started = time.perf_counter()
    batch = env.run_trial([{"texts": list(texts)} for texts in games], agent, seed=1)
    return batch, time.perf_counter() - started


def compare(model: str, client: str, number: int, rounds: int) -> dict[str, float]:
    """Plays with both sides in turns. Exits if they did not do the same."""
    module, tokenizer = MODELS[model]()
    agent = DirectOutputAgent(
        EmbeddedEngine(module, tokenizer, capacity=number), SamplingParams(common.NEW_TOKENS)
    )
    games = common.make_games(tokenizer, number, TURNS)
    ours = common.TalkEnv(tokenizer, {"max_steps_per_episode": TURNS})
    theirs = CLIENTS[client](tokenizer, {"programs": number})
    seconds: dict[str, list[float]] = {"ours": [], "program": []}
    played(theirs, agent, games[:2])
    for _ in range(rounds):
        batches = {}
        for side, env in (("ours", ours), ("program", theirs)):
            batches[side], taken = played(env, agent, games)
            seconds[side].append(taken)
        one, other = batches["ours"], batches["program"]
        pairs = zip(one["full_token_ids"], other["full_token_ids"], strict=True)
        same = statistics.mean(ids == others for ids, others in pairs)
        if _work(one) != _work(other) or same < LEAST_EQUAL:
            raise SystemExit(
                f"{model}, {client}: the program did not do the same work ({same:.0%})"
            )
    own, program = (statistics.median(seconds[side]) for side in ("ours", "program"))
    name = f"{model}_{client}"
    return {
        f"{name}_program_over_ours": program / own,
        f"{name}_ms_per_call": 1000 * (program - own) / (number * TURNS),
        f"{name}_equal_rollouts": same,
    }


def _work(batch: RolloutBatch) -> list[list[tuple[int, int]]]:
    """Where the actions are in each row."""
    return [[(span.start, span.stop) for span in row.spans] for row in batch.rows]


def main() -> None:
    """Print all figures as one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", nargs="+", choices=MODELS, default=["tiny"])
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    figures: dict[str, float] = {}
    for model in given.model:
        for client in given.client:
            figures |= compare(model, client, given.games, given.rounds)
    print(json.dumps({key: float(f"{value:.4g}") for key, value in figures.items()}))


if __name__ == "__main__":
    main()
