"""Reads what a run left in a tracker's store, with the tracker's own means."""

import html
import json
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stored:
    """Values by (name, step), and the rows of the tables of rollouts by the step they came at."""

    values: dict[tuple[str, int], float] = field(default_factory=dict)
    rows: list[tuple[int, dict]] = field(default_factory=list)


def tensorboard(run: Path) -> Stored:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "tensors": 0}).Reload()
    stored = Stored()
    for name in board.Tags()["scalars"]:
        stored.values |= {(name, event.step): event.value for event in board.Scalars(name)}
    for event in board.Tensors("rollouts/text_summary"):
        head, _, *lines = event.tensor_proto.string_val[0].decode().splitlines()
        for line in lines:
            stored.rows.append((event.step, dict(zip(_cells(head), _cells(line)))))
    return stored


def _cells(line: str) -> list[str]:
    return [html.unescape(cell.replace("<br>", "\n")) for cell in line[2:-2].split(" | ")]


def wandb(run: Path) -> Stored:
    """A run's file holds the history; a table is a file beside it."""
    from wandb.proto import wandb_internal_pb2 as records

    (file,) = (run / "wandb").glob("offline-run-*/*.wandb")
    stored = Stored()
    for data in _records(file.read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        items = record.history.item
        line = {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}
        line = {name: value for name, value in line.items() if not name.startswith("_")}
        if "train/global_step" not in line:
            continue
        step = line["train/global_step"]
        if "rollouts.path" in line:
            table = json.loads((file.parent / "files" / line["rollouts.path"]).read_text())
            stored.rows += [(step, dict(zip(table["columns"], row))) for row in table["data"]]
        else:
            stored.values |= {(name, step): value for name, value in line.items()}
    return stored


def _records(content: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, after W&B's own 7 bytes at its head."""
    at, whole = 7, b""
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:  # too short for a head
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a full record, the last part of one
            yield whole
            whole = b""


def trackio(run: Path) -> Stored:
    (base,) = (run / "trackio").glob("*.db")
    stored = Stored()
    for (text,) in sqlite3.connect(base).execute("SELECT metrics FROM metrics"):
        line = json.loads(text)
        step = line.get("train/global_step")
        if "rollouts" in line:
            stored.rows += [(step, row) for row in line["rollouts"]["_value"]]
        else:
            stored.values |= {(name, step): value for name, value in line.items()}
    return stored


def mlflow(run: Path) -> Stored:
    from mlflow import MlflowClient

    client, stored = MlflowClient(f"sqlite:///{run.absolute() / 'mlflow' / 'mlflow.db'}"), Stored()
    (experiment,) = client.search_experiments(filter_string="name = 'agentsgym'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    for name in found.data.metrics:
        history = client.get_metric_history(found.info.run_id, name)
        stored.values |= {(name, entry.step): entry.value for entry in history}
    for file in sorted((run / "mlflow" / "artifacts").rglob("step-*.json")):
        table = json.loads(file.read_text())
        rows = [dict(zip(table["columns"], row)) for row in table["data"]]
        stored.rows += [(int(file.stem.partition("-")[2]), row) for row in rows]
    return stored
