"""thyme story: it runs on a real world, so its output can be compared with the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Thyme

PAST = ["g4", "g3", "blurry", "g2-photo", "g2", "g1-photo", "g1"]


def test_the_story_is_true(thyme: Thyme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    result = thyme("story", "--json")

    assert (result.status, result.err) == (0, "")
    facts = json.loads(result.out)
    # The past comes newest first, in batches, all of it and nothing else (M17).
    assert facts["published"] == 12
    assert facts["total"] == len(PAST)
    assert facts["pages"] == [PAST[:3], PAST[3:6], PAST[6:]]
    # New objects are notified at once; the replay is not, and the reason is shown (M15, M32).
    assert facts["live"] == "g5"
    assert not facts["replay_heard"]
    assert any("has replay" in reason for reason in facts["replay_reasons"])
    # Content is verified (M19); a deleted object is gone (M14).
    assert facts["retrieved_verified"]
    assert facts["retrieved_bytes"] > 0
    assert facts["deleted_retrieve"] == "not_found"
    assert facts["total_after_delete"] == len(PAST)
    assert facts["heard_after_delete"] == ["g5", *(oid for oid in PAST if oid != "blurry")]
    # A frame in the future opens and closes (M10, M18).
    assert facts["frame_heard"] == ["rockets"]
    assert facts["frame_over"] == "its frame is over"
    assert any("lies outside" in reason for reason in facts["frame_missed_reasons"])
    # A world in a directory survives; a subscription is resumed, and nothing comes twice (M27).
    assert facts["restart_taken"] == ["g1"]
    assert sorted(facts["restart_resumed"]) == ["g1-photo", "g3"]
    assert facts["restart_objects"] == 3
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_the_story_is_plain_text() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "thyme.cli", "story"],
        capture_output=True,
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        timeout=30,
    )

    text = result.stdout.decode()
    assert (result.returncode, result.stderr) == (0, b"")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "The 3 most recent of 7" in text
    assert text.index("1. People publish") < text.index("8. Eva's phone dies")
    assert "What next" in text
