"""The one row that makes a step fail, among calls, micro-batches and donors."""

from __future__ import annotations

import torch

from replay.episode import Episode, RecordedCall
from replay.sample import RowSearch


def episode(*calls, batch=None, step=5):
    made = [
        RecordedCall(index=n, root="", module="", fresh=lambda args=args: (args, {}))
        for n, args in enumerate(calls)
    ]
    return Episode(step=step, calls=tuple(made), batch=None if batch is None else lambda: batch)


def search(failing, controls=(), *, bad, whole=False, hints=()):
    """Search with a step that fails while `bad(arguments)` holds for any call."""
    runs = []

    def cured(edit):
        runs.append(edit)
        if whole:
            (batch,), _ = edit(None, (failing.batch(),), {})
            return not bad(batch)
        given = [edit(call, *call.fresh())[0] for call in failing.calls]
        return not any(bad(*args) for args in given)

    found = RowSearch(
        episode=failing,
        controls=controls,
        whole=whole,
        cured=cured,
        hints=[frozenset(each) for each in hints],
    ).find()
    return None if found is None else (found[0], found[1].name), len(runs)


def nan_in(*tensors):
    return any(bool(each.isnan().any()) for each in tensors)


def with_nan(*rows, size=8, width=2):
    x = torch.zeros(size, width)
    for row in rows:
        x[row] = float("nan")
    return x


def test_row_is_found_with_a_control():
    found, runs = search(
        episode((with_nan(5),)), [episode((torch.ones(8, 2),), step=4)], bad=nan_in
    )
    assert found == (5, "step 4")
    assert runs == 6


def test_row_is_found_with_rows_of_its_own_batch_where_controls_have_another_shape():
    control = episode((torch.ones(8, 9),), step=4)
    assert search(episode((with_nan(0),)), [control], bad=nan_in)[0] == (
        0,
        "row 7 of the same batch",
    )


def test_two_rows_are_no_answer():
    control = episode((torch.ones(8, 2),))
    assert search(episode((with_nan(2, 6),)), [control], bad=nan_in)[0] is None


def test_failure_that_no_exchange_cures_has_no_row():
    control = episode((torch.ones(8, 2),))
    assert search(episode((with_nan(2),)), [control], bad=lambda _: True)[0] is None


def test_same_row_is_exchanged_in_all_calls():
    failing = episode((with_nan(3),), (with_nan(3),))
    control = episode((torch.ones(8, 2),), (torch.ones(8, 2),))
    assert search(failing, [control], bad=nan_in)[0][0] == 3


def test_rows_of_micro_batches_are_counted_in_the_whole_batch():
    whole = torch.zeros(8, 2)
    failing = episode((torch.zeros(4, 2),), (with_nan(1, size=4),), batch=whole)
    control = episode((torch.ones(4, 2),), (torch.ones(4, 2),), batch=whole)
    assert search(failing, [control], bad=nan_in)[0][0] == 5


def test_batch_itself_is_edited_for_a_step_fn():
    failing = episode((), batch={"x": with_nan(6)})
    control = episode((), batch={"x": torch.ones(8, 2)})
    found, _ = search(failing, [control], bad=lambda batch: nan_in(batch["x"]), whole=True)
    assert found[0] == 6


def test_single_row_is_no_answer():
    control = episode((torch.ones(1, 2),))
    assert search(episode((with_nan(0, size=1),)), [control], bad=nan_in)[0] is None


def test_hint_saves_the_search_but_not_the_proof():
    control = episode((torch.ones(8, 2),))
    found, runs = search(episode((with_nan(5),)), [control], bad=nan_in, hints=[{1, 2}, {5}])
    assert (found[0], runs) == (5, 2)
    found, runs = search(episode((with_nan(5),)), [control], bad=nan_in, hints=[{3}])
    assert found[0] == 5
    assert search(episode((with_nan(2, 6),)), [control], bad=nan_in, hints=[{2}])[0] is None


def test_control_whose_rows_fit_but_do_not_cure_ends_the_search():
    controls = [episode((torch.ones(8, 2),)) for _ in range(3)]
    found, runs = search(episode((with_nan(2),)), controls, bad=lambda _: True)
    assert (found, runs) == (None, 1)
