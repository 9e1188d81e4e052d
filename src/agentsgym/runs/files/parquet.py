"""Parquet files of known columns, of which nothing else is trusted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.formats import KEY, Format, NewerFormat

_MOST_BYTES = 1 << 31
_MOST_VALUES = 1 << 28
"""Limits for one row group as it says of itself: a small file may decompress to any size."""
_VERSION = f"agentsgym.{KEY}".encode()
_UNREADABLE = (
    pa.ArrowException, OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError,
)  # fmt: skip


@contextmanager
def writing(path: Path, schema: pa.Schema, form: Format) -> Iterator[Callable[[pa.Table], None]]:
    """Writes tables of a schema to a file, each as a row group."""
    schema = schema.with_metadata({_VERSION: str(form.version)})
    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        yield lambda table: writer.write_table(table.cast(schema))


def read_tables(
    path: Path, schema: pa.Schema, form: Format, group: int | None = None
) -> Iterator[pa.Table]:
    """The row groups of a file; with `group` only those whose column `group` may hold the number.

    Raises DamagedFile if the file can't be read or has other columns, NewerFormat if a newer
    agentsgym wrote it, FileNotFoundError if there is none.
    """
    with path.open("rb") as opened, named_damage(path):
        file = pq.ParquetFile(opened)
        _check(file, schema, form, path)
        for number in range(file.num_row_groups):
            if group is None or _may_hold(file.metadata.row_group(number), group):
                yield file.read_row_group(number, use_threads=False).select(schema.names)


@contextmanager
def named_damage(path: Path) -> Iterator[None]:
    """Makes every error of reading a file's contents a DamagedFile that names the file."""
    try:
        yield
    except NewerFormat:
        raise
    except _UNREADABLE as error:
        first_line = str(error).partition("\n")[0]
        raise DamagedFile(f"{path} is damaged: {first_line}") from None


def _check(file: pq.ParquetFile, schema: pa.Schema, form: Format, path: Path) -> None:
    version = (file.schema_arrow.metadata or {}).get(_VERSION, b"1")
    form.check({KEY: int(version)}, path)
    for field in schema:
        number = file.schema_arrow.get_field_index(field.name)
        if number < 0:
            raise DamagedFile(f"it has no column {field.name}")
        kind = file.schema_arrow.field(number).type
        if kind != field.type:
            raise DamagedFile(f"its column {field.name} is {kind}")
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        values = max((group.column(k).num_values for k in range(group.num_columns)), default=0)
        if group.total_byte_size > _MOST_BYTES or values > _MOST_VALUES:
            raise DamagedFile(f"its part {number} is too large")


def _may_hold(row_group: pq.RowGroupMetaData, number: int) -> bool:
    for k in range(row_group.num_columns):
        column = row_group.column(k)
        if column.path_in_schema == "group":
            found = column.statistics
            return not (found and found.has_min_max) or found.min <= number <= found.max
    return True
