"""Runs a program on a terminal that is not its controlling terminal, and hangs up when its ranks are ready."""

import os
import pty
import subprocess
import sys

screen, terminal = pty.openpty()
process = subprocess.Popen(sys.argv[1:], stdin=terminal, stdout=terminal, start_new_session=True)
os.close(terminal)
seen = b""
while b"ready" not in seen:
    seen += os.read(screen, 1000)
os.close(screen)
sys.exit(process.wait())
