"""Two processes cannot change one catalog at once."""

import subprocess
import sys

from flightrec.catalog.lock import locked

HOLDER = """
import sys, pathlib
from flightrec.catalog.lock import locked
with locked(pathlib.Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


def test_another_process_is_seen_and_its_death_frees_the_lock(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "True\n"
        with locked(tmp_path, wait=False) as mine:
            assert not mine
        holder.kill()
        with locked(tmp_path) as mine:
            assert mine
