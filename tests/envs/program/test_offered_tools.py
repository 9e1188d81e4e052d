"""A program may offer tools that its environment does not know."""

import httpx

from agentsgym.checks import check_env
from agentsgym.envs.program.env import ProgramEnv

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
