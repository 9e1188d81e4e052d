"""Parquet files of known columns, of which nothing else is trusted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agentsgym.runs.files.atomic import DamagedFile, opened
from agentsgym.runs.files.records import KEY, VERSION, NewerFormat, check_version

_MOST_BYTES = 1 << 31
_MOST_VALUES = 1 << 28
"""Limits for one row group as it says of itself: a small file may decompress to any size."""
_VERSION = f"agentsgym.{KEY}".encode()
_UNREADABLE = (
    pa.ArrowException, OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError,
)  # fmt: skip


def required(name: str, kind: pa.DataType) -> pa.Field:
    """A column without nulls; a file that declares it otherwise is not read."""
    return pa.field(name, kind, nullable=False)


def list_of(kind: pa.DataType) -> pa.DataType:
    """Lists without nulls."""
    return pa.list_(required("element", kind))


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Writes tables of a schema to a file, each as a row group."""
    schema = schema.with_metadata({_VERSION: str(VERSION)})
    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        yield lambda table: writer.write_table(table.cast(schema))


def read_tables(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """The row groups of a file. Raises DamagedFile if it can't be read or has other columns,
    NewerFormat if a newer agentsgym wrote it, FileNotFoundError if there is none."""
    with opened(path) as stored, reading(path):
        file = pq.ParquetFile(stored)
        _check(file, schema, path)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, use_threads=False).select(schema.names)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Makes every error of reading a file's contents a DamagedFile that names the file."""
    try:
        yield
    except NewerFormat:
        raise
    except _UNREADABLE as error:
        first_line = str(error).partition("\n")[0]
        raise DamagedFile(f"{path} is damaged: {first_line}") from None


def _check(file: pq.ParquetFile, schema: pa.Schema, path: Path) -> None:
    check_version(int((file.schema_arrow.metadata or {}).get(_VERSION, b"1")), path)
    for field in schema:
        number = file.schema_arrow.get_field_index(field.name)
        if number < 0:
            raise DamagedFile(f"it has no column {field.name}")
        if not (stored := file.schema_arrow.field(number)).equals(field):
            raise DamagedFile(f"its column {field.name} is {stored.type}")
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        values = max((group.column(k).num_values for k in range(group.num_columns)), default=0)
        if group.total_byte_size > _MOST_BYTES or values > _MOST_VALUES:
            raise DamagedFile(f"its part {number} is too large")
