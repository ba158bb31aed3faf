"""Which sentences share a row: best-fit packing, and like lengths together for padding.

Only lengths are looked at here. A row is a list of places in the arrays of lengths.
"""

import numpy as np

from attendo.data.corpus import Numbers

Row = list[int]


def pack(source: Numbers, target: Numbers, width: int) -> list[Row]:
    """Fill rows of `width` columns on both sides; long sentences first, each where it fits best.

    Best fit decreasing: each pair goes to the row in which it leaves the least room, or opens a new
    one. Both sides must fit, since partners share a row number.
    """
    order = np.argsort(-np.maximum(source, target), kind="stable")
    room_source = np.full(len(order), width, dtype=np.int64)
    room_target = room_source.copy()
    rows: list[Row] = []
    for place in order.tolist():
        length_source, length_target = source[place], target[place]
        n_open = len(rows)
        # Room left over by this pair in each open row: negative where it does not fit.
        left = np.minimum(
            room_source[:n_open] - length_source, room_target[:n_open] - length_target
        )
        fitting = np.where(left >= 0, left, width)
        best = int(fitting.argmin()) if n_open else 0
        if not n_open or left[best] < 0:
            best = n_open
            rows.append([])
        rows[best].append(place)
        room_source[best] -= length_source
        room_target[best] -= length_target
    return rows


def is_full(row: Row, source: Numbers, target: Numbers, width: int) -> bool:
    """Tell whether a row is at least nine tenths full on one side: good enough to be used."""
    return bool(max(source[row].sum(), target[row].sum()) >= 0.9 * width)


def group_by_length(source: Numbers, target: Numbers, budget: int) -> list[list[Row]]:
    """Make batches of one sentence a row, like lengths together, within a budget of places."""
    longest = np.maximum(source, target)
    batches: list[list[Row]] = []
    batch: list[Row] = []
    for place in np.argsort(longest, kind="stable").tolist():
        # Lengths rise, so the newest member is the width of the batch.
        if batch and (len(batch) + 1) * longest[place] > budget:
            batches.append(batch)
            batch = []
        batch.append([place])
    return [*batches, batch] if batch else batches
