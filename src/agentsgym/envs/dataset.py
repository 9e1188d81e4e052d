"""Dataset rows: the environment, its configuration, and the task."""

import itertools
import json
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.registry import find, make, names_class, registered_name
from agentsgym.envs.settings import check_limits, check_row_config
from agentsgym.types import Tokenizer, Trust
from agentsgym.types.names import ConfigError
from agentsgym.types.text import error_text, short_repr

if TYPE_CHECKING:
    from datasets import Dataset


class TaskRow(TypedDict):
    """One row of a dataset."""

    env_class_path: str
    env_config: dict[str, Any]
    task_data: dict[str, Any]


FIRST_EVAL_SEED = 1_000_000
"""The first held-out seed; `Tasks` allows no more seeds before it."""
_COLUMNS = ("env_class_path", "env_config", "task_data")
_JSON_HINT = "; a text column stores dicts as JSON text: make it datasets.Json()"


def check_row(row: Mapping[str, Any], number: int) -> TaskRow:
    """The row as a TaskRow. Raises ValueError with the row's number and its problem."""
    try:
        return _read(row)
    except ValueError as error:
        raise ValueError(f"row {number}: {error}") from None


def check_rows(rows: Any, envs: "EnvPool", numbers: Iterable[int] | None = None) -> list[str]:
    """The problems in a map-style dataset's rows, one sentence each, starting with the number of
    the first row that has the problem (of a file its line); empty if there are none. Of all rows,
    or of those with the given `numbers`.

    Each (class path, config) is made once, in `envs`, and checks its tasks with `check_task`. No
    episode is played.
    """
    rows_by_problem: dict[str, list[int]] = {}
    for number, row in _numbered(rows, numbers):
        problem = row_problem(row, envs)
        if problem is not None:
            rows_by_problem.setdefault(problem, []).append(number)
    word, first = ("line", 1) if isinstance(rows, TaskFile) else ("row", 0)
    return [
        f"{word} {at[0] + first}{f' (and {len(at) - 1} more)' * (len(at) > 1)}: {problem}"
        for problem, at in rows_by_problem.items()
    ]


def _numbered(rows: Any, numbers: Iterable[int] | None) -> Iterable[tuple[int, Any]]:
    if numbers is None and hasattr(rows, "__iter__"):
        return enumerate(rows)
    return ((n, rows[n]) for n in (range(len(rows)) if numbers is None else numbers))


def row_problem(row: Any, envs: "EnvPool") -> str | None:
    """The problem with a row, in a sentence; None if there is none. Its environment is made in
    `envs` and checks the task."""
    where = ""
    try:
        task = _read(row)
        where = f"{task['env_class_path']} cannot be made: "
        env = envs.get(task)
        where = f"{env.name}: "
        problem = env.check_task(task["task_data"])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's environment may raise anything
        problem = error_text(error) or type(error).__name__
    return None if problem is None else f"{where}{problem}"


def _read(row: Any) -> TaskRow:
    """The row. Raises ValueError with its problem."""
    if not isinstance(row, Mapping):
        raise ValueError(f"a row is a dict with {', '.join(_COLUMNS)}; got {short_repr(row)}")
    for key in _COLUMNS:
        if key not in row:
            raise ValueError(f"{key!r} is missing; it has {sorted(map(str, row))}")
        kind, value = str if key == "env_class_path" else Mapping, row[key]
        if not isinstance(value, kind):
            name = "a name or dotted path" if kind is str else "a dict"
            hint = _JSON_HINT if isinstance(value, str) else ""
            raise ValueError(f"{key!r} must be {name}, got {short_repr(value)}{hint}")
    return {
        "env_class_path": row["env_class_path"],
        "env_config": dict(row["env_config"]),
        "task_data": dict(row["task_data"]),
    }


def task_dataset(env: MultistepEnv, tasks: Iterable[Mapping[str, Any]]) -> "Dataset":
    """A dataset of the environment's tasks.

    Both dict columns are `datasets.Json()`: as Arrow structs, rows of different environments
    would fill each other's keys with None, and an empty dict could not be saved.
    """
    from datasets import Dataset, Features, Json, Value

    task_list = [dict(task) for task in tasks]
    columns = {
        "env_class_path": [env.class_path] * len(task_list),
        "env_config": [env.env_config] * len(task_list),
        "task_data": task_list,
    }
    features = Features(
        {"env_class_path": Value("string"), "env_config": Json(), "task_data": Json()}
    )
    return Dataset.from_dict(columns, features=features)


class ListedTasks(MultistepEnv):
    """An environment whose datasets are lists of tasks."""

    @abstractmethod
    def _tasks(self, held_out: bool) -> Iterable[Mapping[str, Any]]:
        """`task_data` of the training tasks or of the held-out ones."""

    def get_train_dataset(self) -> Any:
        return task_dataset(self, self._tasks(False))

    def get_eval_dataset(self) -> Any:
        return task_dataset(self, self._tasks(True))


class SeedTasks(ListedTasks):
    """An environment whose tasks are seeds, by default 0, 1, …, and 1,000,000, 1,000,001, …, which
    are held out."""

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        try:
            read_seed(task_data)
        except ValueError as error:
            return str(error)
        return None

    def _tasks(self, held_out: bool) -> Iterable[Mapping[str, Any]]:
        settings: Any = self.config
        first = FIRST_EVAL_SEED if held_out else 0
        number = settings.eval_tasks if held_out else settings.train_tasks
        return [{"seed": first + k} for k in range(number)]


def read_seed(task_data: Mapping[str, Any], default: int | None = None) -> int:
    """The seed of a task. Raises ValueError if it is no int from 0, or missing and no default."""
    if "seed" not in task_data and default is None:
        raise ValueError(f"task_data needs a 'seed' (an int from 0), got {short_repr(task_data)}")
    seed = task_data.get("seed", default)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"task_data['seed'] must be an int from 0, got {short_repr(seed)}")
    return seed


def tasks_of(env: MultistepEnv, which: str) -> Any:
    """The environment's own dataset of `which` ("train" or "eval") tasks.

    Raises NotImplementedError if it defines none, ConfigError for anything but a dataset.
    """
    dataset = getattr(env, f"get_{which}_dataset")()
    is_plain = dataset is None or isinstance(dataset, list | tuple | str | Mapping)
    if is_plain or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ConfigError(
            f"{env.name}: get_{which}_dataset must return a dataset (agentsgym.task_dataset(self, "
            f"tasks) makes one), got {short_repr(dataset)}"
        )
    return dataset


class EnvPool:
    """One environment object per class and config, made when a row first names it.

    Args:
        tokenizer: the environments' tokenizer; None for play by text.
        trust: what rows may name, beyond what is registered (`agentsgym.types.Trust`).
        envs: existing objects that play the rows of their class and config. An object with another
            tokenizer is copied (`MultistepEnv.with_tokenizer`).
        template_options: extra arguments of the tokenizer's chat template, for instance
            `{"enable_thinking": False}`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        trust: Trust = False,
        envs: Iterable[MultistepEnv] = (),
        *,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._trust = trust
        self._template_options = template_options
        self._envs: dict[tuple[str, str], MultistepEnv] = {}
        self._own = [self._over_tokenizer(env) for env in envs]
        for one, other in itertools.combinations(self._own, 2):
            if type(one) is type(other) and plays(one, other.class_path, other.env_config):
                raise ValueError(f"envs holds two {one.name} with the same env_config")

    @property
    def template_options(self) -> Mapping[str, Any]:
        """Extra arguments of the tokenizer's chat template."""
        return self._template_options or {}

    @property
    def made(self) -> list[MultistepEnv]:
        """The environments that rows have named so far."""
        return [*self._envs.values()]

    @property
    def names(self) -> set[str]:
        """Class paths of the environments that rows have named so far."""
        return {env.class_path for env in self.made}

    def get(self, row: Mapping[str, Any]) -> MultistepEnv:
        """The environment of a row. Raises UnknownEnvironment or ConfigError."""
        return self.of(row["env_class_path"], row["env_config"])

    def of(self, path: str, config: Mapping[str, Any]) -> MultistepEnv:
        """The environment of a class path and config. Raises UnknownEnvironment or ConfigError."""
        key = (path, config_key(path, config))
        if key not in self._envs:
            own = next((env for env in self._own if plays(env, path, config)), None)
            self._envs[key] = own or self._made(path, config)
        return self._envs[key]

    def put(self, path: str, config: Mapping[str, Any], env: MultistepEnv) -> None:
        """Let `env` play the rows of this class path and config."""
        self._envs[path, config_key(path, config)] = env

    def _made(self, path: str, config: Mapping[str, Any]) -> MultistepEnv:
        env_class = find(path, self._trust)
        name = registered_name(env_class) or env_class.__name__
        if self._trust is not True:
            check_row_config(name, env_class.Settings, config)
        env = make(
            path,
            self._tokenizer,
            config,
            trust=self._trust,
            template_options=self._template_options,
        )
        check_limits(name, env.config)
        return env

    def _over_tokenizer(self, env: MultistepEnv) -> MultistepEnv:
        if not isinstance(env, MultistepEnv):
            raise TypeError(f"envs must contain environment objects, got {short_repr(env)}")
        options = self._template_options
        if self._tokenizer is None or (env.tokenizer is self._tokenizer and not options):
            return env
        return env.with_tokenizer(self._tokenizer, options)


def pool_of(
    envs: EnvPool | Iterable[MultistepEnv] | None,
    tokenizer: Tokenizer | None,
    trust: Trust = False,
) -> EnvPool:
    """The given pool, or a new one with the given environment objects."""
    if isinstance(envs, EnvPool):
        return envs
    return EnvPool(tokenizer, trust, envs or ())


def config_key(path: str, config: Mapping[str, Any]) -> str:
    """A text that is equal for equal configs. Raises ConfigError if it is not plain data."""
    try:
        return json.dumps(config, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: env_config must hold plain values under names (text, numbers, lists, "
            f"dicts), got {short_repr(config)}: {error}"
        ) from None


def own_tasks(env: MultistepEnv, rows: Iterable[Any]) -> list[dict[str, Any]]:
    """The tasks of the rows of this environment, with its configuration."""
    return [
        row["task_data"]
        for row in rows
        if isinstance(row, Mapping) and plays(env, row["env_class_path"], row["env_config"])
    ]


def plays(env: MultistepEnv, path: str, config: Mapping[str, Any]) -> bool:
    """Whether rows with this class path and config belong to this object."""
    same = config_key(path, config) == config_key(path, env.env_config)
    return same and names_class(path, type(env))


# -- tasks in a file -------------------------------------------------------------------------------


class TaskFile:
    """The rows of a file with one JSON object per line, each read when it is asked for.

    Opening reads the file once, to find its lines. In memory is then the place of every line, eight
    bytes; the file may not change while it is in use. A line that is not JSON is its text, so the
    checks of rows find and name it. A line without any of a row's keys is a task of `env`, if that
    is given, and a key that a row lacks is that of `env`.

    Raises OSError if the file cannot be read.
    """

    def __init__(self, path: str | Path, env: MultistepEnv | None = None) -> None:
        self.path = Path(path)
        self._env = env
        self._starts = array("q")
        place = 0
        with self.path.open("rb") as file:
            for line in file:
                self._starts.append(place)
                place += len(line)

    def __len__(self) -> int:
        return len(self._starts)

    def __repr__(self) -> str:
        return f"TaskFile({str(self.path)!r}, {len(self)} rows)"

    def __getitem__(self, number: int) -> Any:
        with self.path.open("rb") as file:
            file.seek(self._starts[number])
            return self._row(file.readline())

    def __iter__(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            yield from map(self._row, file)

    def _row(self, line: bytes) -> Any:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return line.decode(errors="replace").rstrip("\n")
        if self._env is None or not isinstance(row, dict):
            return row
        whose = {"env_class_path": self._env.class_path, "env_config": self._env.env_config}
        return whose | (row if row.keys() & set(_COLUMNS) else {"task_data": row})
