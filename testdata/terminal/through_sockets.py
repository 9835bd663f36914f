"""Runs a program whose stdout and stderr are sockets, which it reads slowly, and prints what it reads."""

import os
import socket
import subprocess
import sys
import threading
import time


def pass_on(ours, target):
    time.sleep(0.3)
    while data := ours.recv(1000):
        os.write(target, data)


pairs = [socket.socketpair(), socket.socketpair()]
environment = dict(os.environ, LD_PRELOAD=sys.argv[1])
theirs = [pair[1] for pair in pairs]
process = subprocess.Popen(sys.argv[2:], stdout=theirs[0], stderr=theirs[1], env=environment)
for end in theirs:
    end.close()
readers = [threading.Thread(target=pass_on, args=(pair[0], target)) for pair, target in zip(pairs, (1, 2))]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
sys.exit(process.wait())
