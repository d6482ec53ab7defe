"""Gradients that enter a recorded step through outputs: which are bad, and how to do without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replay.values import flags_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from replay.episode import Episode, RecordedBackward

    Entry = tuple[int, str, torch.Tensor]
    # index of the call, leaf, total gradient


def without_bad(episode: Episode) -> Episode | None:
    """Return the episode without its non-finite gradients, None where that changes nothing.

    An output that other outputs depend on has a gradient that comes from theirs. Recorded as
    bad it would be bad again however well the backward pass is mended; left out, it follows
    from the others. Where all gradients are bad, they are the failure.
    """
    backwards = []
    dropped = kept = 0
    for backward in episode.backwards:
        entries = backward.gradients()
        good = [each for each in entries if not any(flags.bad for flags in flags_of([each[2]]))]
        dropped += len(entries) - len(good)
        kept += len(good)
        backwards.append(_with(backward, lambda good=good: good))  # type: ignore[misc]  # bound now
    if not dropped or not kept:
        return None
    return replace(episode, backwards=tuple(backwards))


def mended(episode: Episode, mend: Callable[[torch.Tensor], None]) -> Episode:
    """Return the episode with every incoming gradient mended, in place on copies."""

    def mended_entries(backward: RecordedBackward) -> list[Entry]:
        copies = [(call, leaf, tensor.clone()) for call, leaf, tensor in backward.gradients()]
        for _, _, tensor in copies:
            mend(tensor)
        return copies

    backwards = [
        _with(each, lambda each=each: mended_entries(each))  # type: ignore[misc]  # bound now
        for each in episode.backwards
    ]
    return replace(episode, backwards=tuple(backwards))


def _with(backward: RecordedBackward, gradients: Callable[[], list[Entry]]) -> RecordedBackward:
    return replace(backward, gradients=gradients)
