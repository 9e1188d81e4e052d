"""Golden records: digests of what must not move.

python scripts/golden/records.py --check [--part NAME ...]

It measures the tree that it lies in, on one thread. `--check` compares with digests.json and exits
with 1 on a difference, `--write` replaces the parts there. A field that differs only in the last
digits of its floats counts as equal, and is told. Digests depend on the versions of torch and
transformers and on the processor.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DIGESTS = HERE / "digests.json"
SOURCE = HERE.parents[1] / "src"
_FEW = 12


def main() -> int:
    """Check or write."""
    _prepare()
    from parts import PARTS

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store the digests")
    parser.add_argument("--check", action="store_true", help="compare with the stored (default)")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--all", action="store_true", help="name every item that differs")
    given = parser.parse_args()
    stored = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    differs = broken = False
    for part in given.part:
        begun = time.monotonic()
        try:
            measured = _measure(PARTS[part])
        except Exception:
            print(f"{part}: cannot be measured; adapters.py may need a change", flush=True)
            traceback.print_exc()
            broken = True
            continue
        seconds = time.monotonic() - begun
        differs |= _report(part, stored.get(part, {}), measured, seconds, given.all)
        if given.write:
            stored[part] = measured
            DIGESTS.write_text(_text(stored))
    return int(broken or (differs and not given.write))


def _prepare() -> None:
    """One thread, no network, and this tree's package, also in processes that are started."""
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    fixed = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    fixed |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TQDM_DISABLE": "1"}
    fixed |= {"TOKENIZERS_PARALLELISM": "false", "COLUMNS": "200", "PYTHONHASHSEED": "0"}
    os.environ.update(fixed)
    sys.path.insert(0, str(SOURCE))
    import torch

    torch.set_num_threads(1)


def _measure(part: Any) -> dict[str, dict[str, Any]]:
    from digest import digest

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        items = {name: {f: digest(v) for f, v in fields.items()} for name, fields in part()}
    return json.loads(json.dumps(items))


def _report(part: str, stored: dict, measured: dict, seconds: float, every: bool) -> bool:
    """Print a line for the part, and one for each item that differs; whether one does."""
    from digest import compare

    differ, rounding = [], []
    for item in dict.fromkeys([*stored, *measured]):
        if item not in stored or item not in measured:
            differ.append(f"{item}: {'not stored' if item in measured else 'gone'}")
            continue
        old, new = stored[item], measured[item]
        verdicts = {f: compare(old.get(f), new.get(f)) for f in dict.fromkeys([*old, *new])}
        rounding += [f"{item}: {f}" for f, verdict in verdicts.items() if verdict == "rounding"]
        fields = [
            f"{f} {_figures(old.get(f))} -> {_figures(new.get(f))}"
            for f, verdict in verdicts.items()
            if verdict == "differs"
        ]
        if fields:
            differ.append(f"{item}: {'; '.join(fields)}")
    state = f"{len(differ)} of {len(measured)} items differ" if differ else "equal"
    last = f", {len(rounding)} fields but for rounding" if rounding else ""
    print(f"{part}: {state}{last} ({len(measured)} items, {seconds:.0f} s)", flush=True)
    for line in differ if every else differ[:_FEW]:
        print(f"  {line}")
    if len(differ) > _FEW and not every:
        print(f"  and {len(differ) - _FEW} more (--all)")
    return bool(differ)


def _figures(digest: Any) -> str:
    """The hash, and of floats their number, sum and norm."""
    if not isinstance(digest, list):
        return str(digest)
    return f"{digest[0][:6]}/{digest[1][:6]} n={digest[2]} sum={digest[3]:.7g} norm={digest[4]:.7g}"


def _text(stored: dict) -> str:
    """JSON with a line per item."""
    parts = []
    for part, items in sorted(stored.items()):
        lines = [f"    {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in items.items()]
        parts.append(f"  {json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
