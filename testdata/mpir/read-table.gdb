# Does what an MPIR debugger does with the starter that it runs. Reads the process table by its layout, as tools do, because
# its type is a Rust type: rows of 24 bytes with two pointers to strings and a pid.
set pagination off
set confirm off
set height 0
set language c
starti
set var *(int *)&MPIR_being_debugged = 1
break MPIR_Breakpoint
continue
printf "MPIR_debug_state %d\n", *(int *)&MPIR_debug_state
set $rows = *(char **)&MPIR_proctable
set $rank = 0
while $rank < *(int *)&MPIR_proctable_size
  set $row = $rows + 24 * $rank
  printf "rank %d host %s pid %d program %s\n", $rank, *(char **)$row, *(int *)($row + 16), *(char **)($row + 8)
  set $rank = $rank + 1
end
echo table read\n
shell while ! [ -e go ]; do sleep 0.05; done
delete
continue
