"""A taskset of verifiers 0.4: find a digit by "higher" and "lower", in four guesses."""

import verifiers.v1 as vf

__all__ = ["GuessEnv", "GuessTaskset"]

MOST_GUESSES = 4


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData, vf.State, vf.TaskConfig]):
    @vf.metric
    async def guesses(self, trace) -> float:
        return float(trace.num_turns)


class GuessConfig(vf.TasksetConfig):
    tasks: int = 60


class GuessTaskset(vf.Taskset[GuessTask, GuessConfig]):
    def load(self):
        for k in range(self.config.tasks):
            data = GuessData(prompt="Guess.", system_prompt="A digit.", number=k * 7 % 10)
            yield GuessTask(data, self.config.task)


class GuessEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as interaction:
            segment, guesses = await interaction.turn(), 0
            while not segment.terminated:
                guesses += 1
                digits = [int(letter) for letter in segment.last_reply if letter in "0123456789"]
                won = digits[:1] == [task.data.number]
                if won or guesses == MOST_GUESSES:
                    interaction.trace.info["won"] = won
                    interaction.trace.record_reward("won", won * (1.0 - 0.1 * guesses))
                    break
                hint = "Higher." if digits[:1] < [task.data.number] else "Lower."
                segment = await interaction.turn(hint)
