"""An environment that fails where its session's name says so, in whatever process it is played."""

import hashlib
import time
from typing import Any

from helpers import CountdownEnv

RAISES, HANGS = 31, 997  # one session in so many


def fate(session_id: str) -> str:
    """What happens in a session: "raises", "hangs" (once) or "nothing"."""
    number = int.from_bytes(hashlib.blake2b(session_id.encode(), digest_size=8).digest(), "big")
    if number % RAISES == 0:
        return "raises"
    return "hangs" if number % HANGS == 0 else "nothing"


class FragileEnv(CountdownEnv):
    """`task_data["calm"]` switches the faults off."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        state = super()._initialize_episode(session_id, task_data)
        return state | {"calm": task_data.get("calm", False)}

    def _step_episode(self, session_id: str, state: Any, action: str) -> Any:
        what = "nothing" if state["calm"] else fate(session_id)
        if what == "raises":
            raise RuntimeError("the environment was told to fail")
        if what == "hangs":
            time.sleep(60)
        state, _, done, info = super()._step_episode(session_id, state, action)
        return state, sum(map(ord, action)) % 7 / 7, done, info
