"""Programs from functions, and how they call the model."""

from functools import partial

import httpx

from agentsgym.envs.program.env import ProgramEnv
from chat_tokenizers import template, tokenizer_for

TOKENIZER = tokenizer_for(template("qwen2_5"), "<|im_end|>")
# A connection for each call: a pool that many threads share closes a connection as expired that
# another thread was given in the same moment (httpcore; "Bad file descriptor").
POST = partial(httpx.post, timeout=60, verify=False)
CALL = (
    'curl -s $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" '
    '-d \'{"model": "any", "messages": [{"role": "user", "content": "Go?"}]}\' > /dev/null; '
)


def program(function, tokenizer=TOKENIZER, **config):
    """An environment whose program is `function`."""

    class Program(ProgramEnv):
        def run(self, task, client):
            return function(task, client)

    return Program(tokenizer, config)


def ask(client, text, post=POST):
    """Call the model with plain HTTP, the key in the header; the answer's text."""
    answer = post(
        f"{client.base_url}/chat/completions",
        json={"model": "any", "messages": [{"role": "user", "content": text}]},
        headers={"Authorization": f"Bearer {client.api_key}"},
    )
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]
