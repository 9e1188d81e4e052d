"""A program may offer tools that its environment does not know: what is made for it shows tools."""

import httpx

from agentsgym import ScriptedAgent
from agentsgym.checks import check_env
from agentsgym.envs.program.env import ProgramEnv
from agentsgym.tokens import codec_for
from agentsgym.warm_start.new_model import warm_start
from agentsgym.warm_start.settings import TinySettings, WarmStartSettings

TOOL = {
    "type": "function",
    "function": {
        "name": "price",
        "description": "The price.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    },
}


class Shopper(ProgramEnv):
    """Offers a tool, reads an answer and, if it is a call, answers it."""

    def run(self, task, client):
        messages = [{"role": "user", "content": f"What costs item {task['n']}?"}]
        with httpx.Client(headers={"Authorization": f"Bearer {client.api_key}"}) as http:
            for _ in range(2):
                answer = http.post(
                    f"{client.base_url}/chat/completions",
                    json={"model": "any", "messages": messages, "tools": [TOOL]},
                    timeout=60,
                )
                answer.raise_for_status()
                message = answer.json()["choices"][0]["message"]
                messages.append(message)
                for call in message.get("tool_calls") or ():
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "3"})
                messages.append({"role": "user", "content": "Sure?"})
        return 1.0

    def _tasks(self, held_out):
        return [{"n": number + 5 * held_out} for number in range(5)]


def test_the_check_of_a_program_with_tools_passes():
    report = check_env(Shopper, only=["masks"], budget_seconds=5)
    (finding,) = report.findings
    assert finding.passed, finding.evidence


def test_a_tiny_model_for_a_program_can_be_told_of_tools():
    settings = WarmStartSettings(
        steps=1, batch_size=2, games_per_round=2, tokenizer_games=2, vocab_size=400,
        model=TinySettings(layers=1, hidden_size=16, heads=2),
    )  # fmt: skip
    made = warm_start(Shopper(), ScriptedAgent(["Three."]), settings=settings)
    assert codec_for(made.tokenizer).with_tools([TOOL]).ends == (made.tokenizer.eos_token_id,)
