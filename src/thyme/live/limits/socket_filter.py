"""Socket filter: the kernel drops datagrams of banned addresses, before they cost anything.

Entry points: `make_program`, `attach`. A program of the classic Berkeley packet filter compares the
source address and port of each datagram. It saves the processor, not the rules: where the system
has no such filter, `thyme.transport.peer_shares` drops the same datagrams.
Clauses: B5.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Sequence

from thyme.transport.link_config import Address

ENTRIES_MAX = 400
"""Maximum number of addresses in a program; the kernel accepts 4,096 instructions."""
_SO_ATTACH_FILTER = 26
_SO_DETACH_FILTER = 27
_LOAD_WORD, _LOAD_HALF, _JUMP_EQUAL, _JUMP_GREATER, _RETURN = 0x20, 0x28, 0x15, 0x25, 0x06
_IP_HEADER = 0xFFF00000
_SOURCE_V4, _SOURCE_V6 = _IP_HEADER + 12, _IP_HEADER + 8
_RANDOM = 0xFFFFF000 + 56
_ACCEPT, _DROP = 0xFFFF, 0
Instruction = tuple[int, int, int, int]


def make_program(
    banned: Sequence[Address], known: Sequence[Address], stranger_share: float, *, is_ipv6: bool
) -> list[Instruction]:
    """Drops the datagrams of banned addresses; of those that are neither banned nor known it keeps
    a random share."""
    program: list[Instruction] = []
    for address in _fitting(banned, is_ipv6=is_ipv6):
        program += _if_source(address, _DROP, is_ipv6=is_ipv6)
    if stranger_share < 1:
        for address in _fitting(known, is_ipv6=is_ipv6):
            program += _if_source(address, _ACCEPT, is_ipv6=is_ipv6)
        limit = int(stranger_share * 0xFFFFFFFF)
        program += [(_LOAD_WORD, 0, 0, _RANDOM), (_JUMP_GREATER, 0, 1, limit), (_RETURN, 0, 0, 0)]
    return [*program, (_RETURN, 0, 0, _ACCEPT)]


def attach(sockets: Sequence[socket.socket], program: list[Instruction]) -> bool:
    """Attaches a program to sockets, or detaches it if it drops nothing; False if the system
    cannot do it."""
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(packed)
    pointer = struct.pack("HL", len(program), ctypes.addressof(buffer))
    try:
        for each in sockets:
            if len(program) > 1:
                each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
            else:
                each.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    except OSError:
        return False  # not Linux, or no filter to detach
    return True


def _fitting(addresses: Sequence[Address], *, is_ipv6: bool) -> list[Address]:
    return [address for address in addresses if (":" in address[0]) == is_ipv6][:ENTRIES_MAX]


def _if_source(address: Address, verdict: int, *, is_ipv6: bool) -> list[Instruction]:
    """Returns the verdict if a datagram is from an address; the port is at the start of the UDP
    header."""
    host, port = address
    packed = ipaddress.ip_address(host.partition("%")[0]).packed
    words = struct.unpack(f"!{len(packed) // 4}I", packed)
    start = _SOURCE_V6 if is_ipv6 else _SOURCE_V4
    checks = [(_LOAD_WORD, start + 4 * index, word) for index, word in enumerate(words)]
    checks.append((_LOAD_HALF, 0, port))
    program: list[Instruction] = []
    for index, (load, offset, value) in enumerate(checks):
        left = 2 * (len(checks) - 1 - index) + 1
        program += [(load, 0, 0, offset), (_JUMP_EQUAL, 0, left, value)]
    return [*program, (_RETURN, 0, 0, verdict)]
