"""The store for tests is shared by name; tests/contracts has the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from flightrec.stores import open_store
from flightrec.testing.captures import make_capture


@pytest.fixture
def url(request):
    return f"memory://{request.node.nodeid}"


def test_one_name_is_one_store(url):
    open_store(url).put(make_capture())
    assert len(open_store(url).ids()) == 1
    assert open_store(f"{url}/other").ids() == []


def test_nothing_is_left_when_the_process_ends():
    script = (
        "from flightrec.stores import open_store\n"
        "from flightrec.testing.captures import make_capture\n"
        "print(open_store('memory://x').put(make_capture()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).parent.exists()
