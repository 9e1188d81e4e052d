"""Plays games on a server with many connections at once, as a program that can be killed.

Its arguments are the address, the number of the first client, the number of clients and the games
of each. It prints each game that it has finished as a line of JSON; with a last argument "hold" it
stops in the middle of its first games, and says so.
"""

import asyncio
import json
import random
import sys

from openenv.core.generic_client import GenericEnvClient

ARMS = ("red", "green", "blue", "something else")


def action(game, step):
    """What the player says in a game; no conversation changes it."""
    return random.Random(f"{game} {step}").choice(ARMS)


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def play(client, game, hold):
    """One game: the texts that were shown, and the rewards."""
    result = await client.reset(split="train", index=game)
    shown, rewards = [result.observation["text"]], []
    while not result.done:
        result = await client.step({"text": action(game, len(rewards))})
        shown.append(result.observation["text"])
        rewards.append(result.reward)
        if hold and len(rewards) == 2:
            say("holding")
            await asyncio.sleep(600)
    return {"game": game, "shown": shown, "rewards": rewards}


async def be_client(url, number, games, hold):
    async with GenericEnvClient(base_url=url) as client:
        for game in range(number * games, (number + 1) * games):
            say(json.dumps(await play(client, game, hold)))


async def main(url, first, clients, games, hold=False):
    numbers = range(int(first), int(first) + int(clients))
    await asyncio.gather(*(be_client(url, number, int(games), hold) for number in numbers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
