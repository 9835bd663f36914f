"""A process that connects to the port of a daemon and is not part of the session. It ends when the daemon has closed the connection,
and prints in hexadecimal digits what the daemon has sent.

    stranger.py KIND HOST PORT [BYTES]

BYTES are those to send, in hexadecimal digits. `stranger.py record` instead prints what a real daemon of this node sends to the root.
"""

import os
import socket
import sys
import time

PATIENCE = 30
HANDSHAKE = 48


def preamble(version, build):
    return b"RLYN" + version.to_bytes(2, "little") + bytes([len(build)]) + build


def answer(peer):
    """Returns what comes before the end of the connection."""
    said = b""
    try:
        while part := peer.recv(4096):
            said += part
    except ConnectionError:
        pass
    return said


def record():
    """Returns the first bytes of a connection, from the preamble to behind the first encrypted record."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    packets.settimeout(PATIENCE)
    print("ready", flush=True)
    sent = {}
    while True:
        packet, (_, _, direction, *_) = packets.recvfrom(1 << 17)
        if direction != socket.PACKET_OUTGOING or packet[0] >> 4 != 4 or packet[9] != 6:
            continue
        segment = packet[4 * (packet[0] & 15) : int.from_bytes(packet[2:4])]
        ports, bytes_ = segment[:4], segment[4 * (segment[12] >> 4) :]
        if bytes_.startswith(b"RLYN") or ports in sent:
            sent[ports] = sent.get(ports, b"") + bytes_
            told = sent[ports]
            if len(told) > 7 and len(told) > 7 + told[6] + HANDSHAKE + 20:
                return told


def main():
    if sys.argv[1] == "record":
        return record()
    kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    given = bytes.fromhex(sys.argv[4]) if len(sys.argv) > 4 else b""
    if kind == "scan":
        for one in range(port - 50, port + 50):
            with socket.socket() as peer:
                peer.connect_ex((host, one))
        return b""
    peers = [socket.create_connection((host, port), PATIENCE) for _ in range(1500 if kind == "flood" else 1)]
    peer = peers[0]
    if kind == "slow":
        try:
            for byte in preamble(1, b"x" * 90):
                peer.sendall(bytes([byte]))
                time.sleep(0.2)
        except ConnectionError:
            pass
        return answer(peer)
    peer.sendall(
        {
            "garbage": bytes(range(255, 127, -1)),
            "browser": b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n",
            "older": preamble(0, b"rally 0.0.9 (0123456789abcdef)"),
            "newer": preamble(999, b"rally 9.0.0 (0123456789abcdef)"),
            "build": preamble(int.from_bytes(given[4:6], "little"), b"rally 0.1.0 (0123456789abcdef)"),
            "secret": given + os.urandom(HANDSHAKE),
            "replay": given,
            "flood": b"",
        }[kind]
    )
    said = b"".join(answer(peer) for peer in peers)
    return said


sys.stdout.write(main().hex())
