"""Signature: the author of a bundle, by OpenSSH signatures.

The signed file is the manifest, which has the checksums of all other files.  The file of allowed signers is that of
``ssh-keygen``, a line such as ``me@example.org ssh-ed25519 AAAA...``; see the section ALLOWED SIGNERS of its manual.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

from pipeline.errors import BundleError, InputError

SIGNATURE = "manifest.json.sig"

NAMESPACE = "soc-pipeline-bundle"
"""Namespace of signatures, so that nobody can pass off a signature of something else as that of a bundle."""

LARGEST = 64 << 10
"""Upper bound on a signature in bytes. One of ed25519 has 300, one with a certificate some thousands."""

_LIMIT_S = 60.0
"""A key with a passphrase, or on a token, waits for its user."""


class SignedManifest(NamedTuple):
    """A manifest as it was written, and its signature."""

    manifest: bytes
    signature: bytes


def sign(manifest: bytes, key: Path) -> bytes:
    """Sign a manifest by a private key or an agent.

    Raises `InputError` if the key cannot be used, or ``ssh-keygen`` is not installed.
    """
    if not key.is_file():
        raise InputError(f"there is no key {str(key)!r}; make one with 'ssh-keygen -t ed25519 -f {key}'")
    result = _run(["-Y", "sign", "-f", str(key), "-n", NAMESPACE], manifest)
    if result.returncode or not result.stdout:
        raise InputError(f"cannot sign with {str(key)!r}: {_reason(result)}")
    return result.stdout


def verify(signed: SignedManifest, allowed: Path) -> str:
    """Return who signed a manifest.

    Raises
    ------
    BundleError
        If nobody did who is allowed to.
    InputError
        If there is no file of allowed signers, or ``ssh-keygen`` is not installed.
    """
    check_allowed(allowed)
    with _signature_file(signed.signature) as (name, descriptors):
        signature = ["-s", name, "-f", str(allowed)]
        answer = _run(["-Y", "find-principals", *signature], b"", descriptors)
        principals = answer.stdout.decode(errors="replace").splitlines()
        for principal in principals:
            # A key may be there under several names, of which some are for other purposes.
            arguments = ["-Y", "verify", "-n", NAMESPACE, "-I", principal, *signature]
            if not _run(arguments, signed.manifest, descriptors).returncode:
                return principal
    reason = "its signature is of something else" if principals else "its signer is not in that file, or no longer"
    raise BundleError(f"it is signed by nobody whom {str(allowed)!r} allows: {reason}")


@contextlib.contextmanager
def _signature_file(content: bytes) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield a signature's name for another process, with inherited descriptors.

    The signature lies in memory where the system can do that: no folder for temporary files need be there.
    """
    # Not at the top: bundles without signatures need none of it.
    import tempfile

    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.memfd_create("signature")
        except (AttributeError, OSError):
            named = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".sig"))
            named.write(content)
            named.flush()
            yield named.name, ()
        else:
            stack.callback(os.close, descriptor)
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}", (descriptor,)


def check_allowed(allowed: Path) -> None:
    """Raise `InputError` without a file of allowed signers."""
    if not allowed.is_file():
        raise InputError(
            f"there is no file {str(allowed)!r} of allowed signers; write a line for each, such as "
            "'me@example.org ssh-ed25519 AAAA...'"
        )


def _run(arguments: Sequence[str], data: bytes, descriptors: Sequence[int] = ()) -> CompletedProcess[bytes]:
    import subprocess

    try:
        return subprocess.run(  # noqa: S603 - without a shell
            ["ssh-keygen", *arguments],  # noqa: S607 - the user's own
            input=data,
            capture_output=True,
            check=False,
            timeout=_LIMIT_S,
            pass_fds=descriptors,
        )
    except FileNotFoundError:
        raise InputError("signatures need ssh-keygen; install OpenSSH's client") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"ssh-keygen has not answered for {_LIMIT_S:g} s") from None


def _reason(result: CompletedProcess[bytes]) -> str:
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"ssh-keygen ended with status {result.returncode}"
