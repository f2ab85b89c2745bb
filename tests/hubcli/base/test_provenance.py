"""Where hub came from: what installers record, and what of it may be told to others."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from hubcli.base import provenance

GIT = {"url": "https://forge.example/o/hub.git", "vcs_info": {"vcs": "git", "commit_id": "0b1d9d2c"}}


@pytest.mark.parametrize(
    ("recorded", "source"),
    [
        (GIT, "git+https://forge.example/o/hub.git@0b1d9d2c"),
        ({**GIT, "url": "ssh://git@forge.example/o/hub.git"}, None),
        ({**GIT, "url": "https://me:secret@forge.example/o/hub.git"}, None),
        ({**GIT, "url": 'https://forge.example/"; rm'}, None),
        ({**GIT, "vcs_info": {"vcs": "hg", "commit_id": "0b1d9d2c"}}, None),
        ({"url": "file:///home/me/hub", "dir_info": {"editable": True}}, None),
        (None, None),
        ([], None),
    ],
)
def test_source(recorded, source, monkeypatch):
    class Recorded:
        def read_text(self, name):
            assert name == "direct_url.json"
            return None if recorded is None else json.dumps(recorded)

    monkeypatch.setattr(metadata, "distribution", lambda name: Recorded())
    assert provenance.source() == source


def test_not_installed_at_all(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert provenance.source() is None
