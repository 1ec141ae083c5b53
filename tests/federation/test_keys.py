"""Identities of parties."""

import os

import pytest

from pkm.federation import Identity


def test_identity_is_kept_in_a_private_file(tmp_path):
    identity = Identity.generate()
    path = tmp_path / "key.pem"
    identity.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Identity.load(path).fingerprint == identity.fingerprint
    assert Identity.generate().fingerprint != identity.fingerprint
    with pytest.raises(FileExistsError):
        identity.save(path)

    os.chmod(path, 0o640)
    with pytest.raises(ValueError, match="has mode 640, it must be 600"):
        Identity.load(path)
    path.write_text("no key")
    os.chmod(path, 0o600)
    with pytest.raises(ValueError, match="must hold an Ed25519 private key"):
        Identity.load(path)
