"""Bundles for a cluster: what is verified is what travels."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pipeline.cluster.bundle_parts import describe_parts, keep_bundle, read_parts
from pipeline.errors import BundleError
from pipeline.executor import manifest
from tests.cluster.conftest import bundle

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed")


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    key = tmp_path / "key"
    line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(line, check=True, timeout=60)
    (tmp_path / "allowed").write_text(f"me {key.with_suffix('.pub').read_text()}")
    bundle(stages=2).save(tmp_path / "signed", sign=key)
    bundle(stages=3).save(tmp_path / "other")
    return tmp_path / "allowed"


def test_a_bundle_that_nobody_signed_does_not_travel(allowed: Path) -> None:
    assert len(describe_parts(read_parts(allowed.parent / "signed", allowed)).plan.stages) == 2
    with pytest.raises(BundleError, match="is not signed"):
        read_parts(allowed.parent / "other", allowed)


def test_a_folder_that_changes_while_it_is_verified(allowed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed, other, program = allowed.parent / "signed", allowed.parent / "other", allowed.parent / "bin" / "ssh-keygen"
    program.parent.mkdir()
    copies = f"cp {other}/manifest.json {other}/manifest.sha256 {signed}/"
    program.write_text(f'#!/bin/sh\n{shutil.which("ssh-keygen")} "$@"\nstatus=$?\n{copies}\nexit $status\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    parts = read_parts(signed, allowed)
    assert len(manifest.read(signed).stages) == 3
    assert len(describe_parts(parts).plan.stages) == 2
    # Its checksum is what nodes know it by, and it names all other files.
    assert len(manifest.read(keep_bundle(parts, allowed.parent / "node")).stages) == 2
