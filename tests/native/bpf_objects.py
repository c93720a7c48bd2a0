"""The BPF programs the kernel holds, by bpf(2) itself: no bpftool, no debugfs. Needs CAP_SYS_ADMIN; Linux 4.15."""

import ctypes
import errno
import os
import platform
import struct

SYS_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
# enum bpf_cmd of include/uapi/linux/bpf.h
PROG_GET_NEXT_ID, MAP_GET_NEXT_ID, PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD = 11, 12, 13, 15
LINK_GET_NEXT_ID = 31  # since 5.8
# struct bpf_prog_info up to its name: type, id, tag, lengths, pointers, load_time, created_by_uid, map ids, name
PROG_INFO = struct.Struct("=II8sIIQQQIIQ16s")

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    """The call's result and the attributes as it left them; OSError with its errno."""
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 16))
    result = libc.syscall(SYS_BPF, command, buffer, ctypes.sizeof(buffer))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result, buffer.raw


def ids(command):
    """The numbers of the objects of a kind, ascending; `command`: one of the *_GET_NEXT_ID."""
    last = 0
    while True:
        try:
            last = struct.unpack_from("=II", bpf(command, struct.pack("=III", last, 0, 0))[1])[1]
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        yield last


def programs():
    """[(id, name, uid of who loaded it)] of the programs there are, whether attached or not."""
    found = []
    for number in ids(PROG_GET_NEXT_ID):
        try:
            fd, _ = bpf(PROG_GET_FD_BY_ID, struct.pack("=III", number, 0, 0))
        except OSError as error:
            if error.errno == errno.ENOENT:  # it went meanwhile
                continue
            raise
        try:
            info = ctypes.create_string_buffer(PROG_INFO.size)
            bpf(OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd, len(info), ctypes.addressof(info)))
        finally:
            os.close(fd)
        fields = PROG_INFO.unpack(info.raw)
        found.append((fields[1], fields[11].rstrip(b"\0").decode(), fields[8]))
    return found


def names_of(uid):
    """Sorted names of the programs that this user has loaded. One that is attached cannot be missing from it."""
    return sorted(name for _, name, creator in programs() if creator == uid)
