"""Reads what a run left in a tracker's store, with the tracker's own means."""

import json
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stored:
    """Values by (name, step)."""

    values: dict[tuple[str, int], float] = field(default_factory=dict)


def tensorboard(store: Path) -> Stored:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(store / "tensorboard"), {"scalars": 0, "tensors": 0}).Reload()
    stored = Stored()
    for name in board.Tags()["scalars"]:
        stored.values |= {(name, event.step): event.value for event in board.Scalars(name)}
    return stored


def wandb(store: Path) -> Stored:
    """A run's file holds the history; a table is a file beside it."""
    from wandb.proto import wandb_internal_pb2 as records

    (file,) = (store / "wandb").glob("offline-run-*/*.wandb")
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


def trackio(store: Path) -> Stored:
    (base,) = (store / "trackio").glob("*.db")
    stored = Stored()
    for (text,) in sqlite3.connect(base).execute("SELECT metrics FROM metrics"):
        line = json.loads(text)
        step = line.get("train/global_step")
        stored.values |= {(name, step): value for name, value in line.items()}
    return stored


def mlflow(store: Path) -> Stored:
    from mlflow import MlflowClient

    client, stored = MlflowClient(f"sqlite:///{store / 'mlflow.db'}"), Stored()
    (experiment,) = client.search_experiments(filter_string="name = 'agentsgym'")
    (finished,) = client.search_runs([experiment.experiment_id])
    assert finished.info.status == "FINISHED"
    for name in finished.data.metrics:
        history = client.get_metric_history(finished.info.run_id, name)
        stored.values |= {(name, entry.step): entry.value for entry in history}
    return stored
