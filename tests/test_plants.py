"""Each fault of `tests.plants` is found by a test that leaves nothing to chance; the torture may find it as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import plants

ROOT = Path(__file__).parents[1]
ENDLESS = "tests/hubcli/net/http/test_endless.py"
FOUND_BY = {
    "direct_write": f"{ENDLESS}::test_everything_in_the_cache_comes_by_rename",
    "copied_blob": f"{ENDLESS}::test_a_blob_is_put_in_place_at_once",
    "no_if_range": f"{ENDLESS}::test_a_resumed_download_names_the_file_it_goes_on_with",
    "truncated": f"{ENDLESS}::test_a_rest_that_breaks_off_is_not_the_file",
    "no_digest": "tests/hubcli/cache/test_weights.py::test_a_hash_that_does_not_fit",
    "marker_first": "tests/hubcli/cache/test_cache.py::test_a_tree_is_whole_before_it_is_shown",
    "lost_update": "tests/hubcli/cache/test_ref_table.py::test_a_writer_that_read_before_takes_nothing_away",
    "shared_partial": f"{ENDLESS}::test_the_partial_of_a_living_process_is_copied",
}
CODE = """
import sys
from tests import plants
plants.PLANTS[sys.argv[1]]()
import pytest
sys.exit(pytest.main(["-qx", "-p", "no:cacheprovider", "-o", "addopts=", sys.argv[2]]))
"""


def test_every_fault_has_its_test():
    assert set(FOUND_BY) == set(plants.PLANTS)


@pytest.mark.parametrize("name", plants.PLANTS)
def test_a_fault_is_found(name, tmp_path):
    command = [sys.executable, "-c", CODE, name, FOUND_BY[name]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED and "1 failed" in done.stdout, done.stdout[-2000:]
