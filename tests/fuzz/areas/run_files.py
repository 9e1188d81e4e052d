"""Run files: bytes that claim to be YAML."""

import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from agentsgym.envs import ConfigError, UnknownEnvironment
from agentsgym.runs import load_config
from agentsgym.runs.from_config import train_settings
from fuzz.oracle import Area, refused_with
from fuzz.values import odd_values

PRESET = (files("agentsgym") / "presets" / "quickstart.yaml").read_bytes()
KEYS = st.sampled_from(
    ["name", "seed", "env", "env_config", "model", "warm_start", "answerer", "train", "eval",
     "max_seconds", "time_decay_to", "threads", "output_dir", "description", "eval.episodes",
     "nonsense"]
)  # fmt: skip


@st.composite
def run_files(draw: Any) -> bytes:
    """The preset with bytes changed, or with keys of any value."""
    if draw(st.booleans()):
        data = bytearray(PRESET)
        for _ in range(draw(st.integers(0, 5))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        cut = draw(st.integers(0, len(data)) | st.just(len(data)))
        encoding = draw(st.sampled_from(["utf-8", "utf-16", "latin-1", "utf-32"]))
        text = bytes(data[:cut]).decode("latin-1")
        return text.encode(encoding, errors="replace")
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([b"[" * 3000, b"{a: " * 3000, b"&a [*a]", b"!!python/object:x.y {}", b"? " * 500, b"\xff\xfe", b"a: b: c"]))  # fmt: skip  # noqa: E501
    given = {"env": "TwentyQuestions", "train": {"max_steps": 3}}
    given |= draw(st.dictionaries(KEYS, odd_values(), max_size=3))
    dumped: str = yaml.safe_dump(given, allow_unicode=True)
    return dumped.encode("utf-8", errors="surrogatepass")


def check(content: bytes) -> bool:
    """A run's configuration, or a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        path.write_bytes(content)
        try:
            train_settings(load_config(str(path), {}))
        except (ConfigError, UnknownEnvironment) as error:
            return refused_with(error)
    return True


AREA = Area("run files", run_files(), check)
