@COMMON@# One command starts all nodes, and all get the same standard input: the boot frame. A node without the program gets it
# from a command of its own.
if present; then
  exec "$own" "$argument"
fi
say absent "$SLURMD_NODENAME"
# srun ends the daemons of all nodes if one of them exits before it has taken what srun sends.
exec cat >/dev/null
