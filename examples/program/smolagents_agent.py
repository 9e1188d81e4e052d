"""A smolagents agent with two tools that answers questions about people's ages.

The tasks are those of langgraph_agent.py. The history that smolagents sends has earlier calls of
tools as text in words of its own, so each answer of the model is a row with a prompt of its own.
"""

import httpx
from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool

HTTP = httpx.Client()  # one for all tasks: making it takes 40 ms


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One number.
        b: The other.
    """
    return a + b


def run(task, client):
    """Answer the question; the reward is 1 if the answer is right."""

    @tool
    def lookup(name: str) -> int:
        """Look up how old somebody is.

        Args:
            name: Whose age it is.
        """
        return task["ages"][name]

    model = OpenAIServerModel(
        model_id=client.model,
        api_base=client.base_url,
        api_key=client.api_key,
        client_kwargs={"http_client": HTTP},
    )
    agent = ToolCallingAgent([lookup, add], model, verbosity_level=LogLevel.OFF)
    return float(str(agent.run(task["question"])) == task["answer"])
