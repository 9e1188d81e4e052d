"""One sampled token for each row that has read all it knows."""

import numpy as np
import numpy.typing as npt
import torch

from agentsgym.generation.embedded.batch import RowTable
from agentsgym.generation.embedded.sampling import sample, uniforms
from agentsgym.types.arrays import Ints


def append_tokens(
    table: RowTable, rows: Ints, logits: torch.Tensor
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Sample a token for each of `rows` [n] from `logits` [n, vocab] and write it to the table.

    Returns the ids [n] and whether each row failed [n], because its logits are not finite.
    """
    index = table.sampled_before[rows] + table.known[rows] - table.context[rows]
    noise = torch.from_numpy(uniforms(table.seed[rows], index)).to(logits.device)
    ids, logprobs = sample(logits, noise, *_parameters(table, rows, logits.device))
    token_ids, values = ids.cpu().numpy(), logprobs.cpu().numpy()
    ends = table.known[rows]
    table.tokens[rows, ends] = token_ids
    table.logprobs[rows, ends] = values
    table.known[rows] = ends + 1
    return token_ids, ~np.isfinite(values)


def _parameters(
    table: RowTable, rows: Ints, device: torch.device
) -> tuple[torch.Tensor | None, ...]:
    """Temperature, top-k and top-p of `rows`, each None where no row uses it."""
    columns = (
        (table.temperature[rows], 1.0),
        (table.top_k[rows], 0),
        (table.top_p[rows], 1.0),
    )
    return tuple(
        torch.from_numpy(values).to(device) if (values != off).any() else None
        for values, off in columns
    )
