"""The ad hoc signature of a Mach-O library, which the linker writes: digests of the pages in front of it.

It is written anew where bytes of these have changed since (Apple's xnu, osfmk/kern/cs_blobs.h)."""

from __future__ import annotations

import hashlib
import struct

_HEADER_SIZE, _CODE_SIGNATURE = 32, 0x1D
_SUPER_BLOB, _DIRECTORY = 0xFADE0CC0, 0xFADE0C02
#: Of a code directory behind its magic, length, version and flags: where digests are, identifier, special
#: ones, ordinary ones, how much they cover; bytes and kind of a digest, platform, pages as powers of two.
_DIRECTORY_FIELDS = struct.Struct(">IIIIIBBBB")
_FIELDS_AT, _SHA256 = 16, 2


def sign_again(data: bytearray) -> None:
    """Brings the digests of an ad hoc signature up to date, where ``data`` has one. Raises ValueError for one
    of another kind."""
    place = _signature(data)
    if place is None:
        return
    magic, _, count = struct.unpack_from(">III", data, place)
    if magic != _SUPER_BLOB:
        raise ValueError("its signature does not begin as one")
    for number in range(count):
        _, offset = struct.unpack_from(">II", data, place + 12 + 8 * number)
        if struct.unpack_from(">I", data, place + offset)[0] == _DIRECTORY:
            _digest_pages(data, place + offset)


def _signature(data: bytearray) -> int | None:
    """Where the signature is."""
    at = _HEADER_SIZE
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        command, size, place = struct.unpack_from("<III", data, at)
        if command == _CODE_SIGNATURE:
            return int(place)
        at += size
    return None


def _digest_pages(data: bytearray, directory: int) -> None:
    digests, _, _, pages, limit, size, kind, _, log2 = _DIRECTORY_FIELDS.unpack_from(
        data, directory + _FIELDS_AT
    )
    if (kind, size) != (_SHA256, hashlib.sha256().digest_size):
        raise ValueError("its signature has other digests than SHA-256")
    for number in range(pages):
        page = data[number << log2 : min(limit, (number + 1) << log2)]
        at = directory + digests + size * number
        data[at : at + size] = hashlib.sha256(page).digest()
