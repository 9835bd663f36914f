"""Records the stack of a program that waits: python3 record.py PROGRAM

Runs it under qemu-aarch64 (user mode, with signed return addresses), stops it with gdb-multiarch at its system call in
`wait_for_ever`, and prints the four registers needed to unwind its stack, then parts of its memory, as ADDRESS BYTES.
"""

import subprocess
import sys
import tempfile

PORT = "12399"
SCRIPT = r"""
set pagination off
set confirm off
target remote :%s
handle SIGUSR1 nostop noprint pass
break *(wait_for_ever+36)
continue
python
import gdb
inferior = gdb.selected_inferior()
def register(name): return int(gdb.parse_and_eval("(unsigned long)$" + name))
def part(start, length): print("PART %%x %%s" %% (start, inferior.read_memory(start, length).tobytes().hex()))
print("PART " + " ".join("%%x" %% register(name) for name in ("pc", "sp", "x29", "x30")))
stack = register("sp")
part(stack, 0x1800)
handler = int.from_bytes(inferior.read_memory(register("x29") + 8, 8).tobytes(), "little") & ((1 << 48) - 1)
part(handler, 16)
end
kill
"""

program = sys.argv[1]
with subprocess.Popen(["qemu-aarch64", "-cpu", "max", "-g", PORT, program]) as server:
    with tempfile.NamedTemporaryFile("w", suffix=".gdb") as script:
        script.write(SCRIPT % PORT)
        script.flush()
        gdb = ["gdb-multiarch", "-nx", "-batch", "-x", script.name, program]
        said = subprocess.run(gdb, capture_output=True, text=True, timeout=60)
    server.kill()
parts = [line[5:] for line in said.stdout.splitlines() if line.startswith("PART ")]
if len(parts) != 3:
    sys.exit(said.stdout + said.stderr)
print("\n".join(parts))
