"""Does what README.md shows work?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import flightrec

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=("recorder", "watch"))
def test_example_records_a_failure(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    loader = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(4)]
    loader[2][0][1, 1] = float("nan")
    names = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": loader,
        "loss_fn": nn.functional.mse_loss,
    }
    exec(example, names)
    store = flightrec.open_store("incidents")
    assert len(store.ids()) == 1
    with store.open(store.ids()[0]) as incident:
        assert (incident.manifest["kind"], incident.manifest["step"]) == ("nan", 2)


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).is_file(), link


def test_commands_exist():
    for command in re.findall(r"(?:\$ |`)flightrec (\w+)", README):
        assert (ROOT / "flightrec" / "cli" / f"{command}.py").is_file(), command
