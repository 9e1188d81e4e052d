"""Detects vLLM servers that crash when they split a prefill into chunks.

vLLM 0.31 rewinds the random generator of a request whose prefill was split (`set_offset` in its
`gpu_model_runner`). A CPU's generator cannot be rewound ("CPU Generator does not use offset"), so
the server's engine crashes. It happens with requests that have a seed, and all of ours have one.
"""

from typing import Any

from agentsgym.generation.http.client import HttpError, JsonClient

MEND = (
    "start vLLM on a CPU with --no-enable-chunked-prefill and --max-num-batched-tokens of at "
    "least --max-model-len"
)

_SECONDS = 60.0  # for its first answer the server collects facts about its machine


async def dies_of_chunks(client: JsonClient, url: str) -> bool:
    """Whether the server runs on a CPU and may split prefills. False if it does not report it:
    only a server in development mode (VLLM_SERVER_DEV_MODE=1) does."""
    try:
        answer = await client.get(f"{url}/server_info?config_format=json", _SECONDS)
    except HttpError:
        return False
    config = _part(answer, "vllm_config")
    on_cpu = _part(config, "device_config").get("device") == "cpu"
    return on_cpu and bool(_part(config, "scheduler_config").get("enable_chunked_prefill"))


def _part(of: Any, name: str) -> dict[str, Any]:
    found = of.get(name) if isinstance(of, dict) else None
    return found if isinstance(found, dict) else {}
