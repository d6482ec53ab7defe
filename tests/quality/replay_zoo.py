"""Replay incidents of the zoo where neither the models nor their batches are known.

`python -m tests.quality.replay_zoo STORE LABEL=ID ...` prints the verdicts as one line of JSON,
beside the gradients' hashes of the incident labelled `healthy`. It runs with another user's key:
library models must come back without anything being trusted by hand.
"""

from __future__ import annotations

import dataclasses
import json
import sys

import torch

import replay
from flightrec import open_store


def main() -> None:
    """Replay the healthy incident and bisect the others."""
    store, *labelled = sys.argv[1:]
    torch.set_num_threads(1)
    verdicts, gradients = {}, {}
    for label, incident in (word.split("=") for word in labelled):
        replayer = replay.load(store, incident)
        verdict = replayer.run() if label == "healthy" else replayer.bisect()
        verdicts[label] = dataclasses.asdict(verdict)
        if label == "healthy":
            manifest = open_store(store).open(incident).manifest
            gradients = {
                row["parameter"].removeprefix(":"): row["hash"]
                for row in manifest["segment"]["gradients"]
            }
    sys.stdout.write(json.dumps({"verdicts": verdicts, "gradients": gradients}) + "\n")


if __name__ == "__main__":
    main()
