# What a debugger that knows MPIR does with its starter. The package with the symbols is Rust, so gdb's language is
# Rust at the breakpoint: no C casts.
set pagination off
set confirm off
set height 0
set detach-on-fork on
set follow-fork-mode parent
starti
set language rust
set var MPIR_being_debugged = 1
break MPIR_Breakpoint
continue
set language rust
printf "MPIR_debug_state %d\n", MPIR_debug_state
set $rank = 0
while $rank < MPIR_proctable_size
  set $row = MPIR_proctable + $rank
  set language c
  printf "rank %d host %s pid %d program %s\n", $rank, (char *)$row->host_name, $row->pid, (char *)$row->executable_name
  set language rust
  set $rank = $rank + 1
end
echo table read\n
shell while ! [ -e go ]; do sleep 0.05; done
delete
continue
