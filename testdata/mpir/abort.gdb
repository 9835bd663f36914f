# Prints what an MPIR debugger sees of a job that is aborted.
set pagination off
set confirm off
set height 0
set language c
starti
set var MPIR_being_debugged = 1
set language auto
break MPIR_Breakpoint
commands
  silent
  printf "state %d", MPIR_debug_state
  if MPIR_debug_abort_string
    printf ": %s", MPIR_debug_abort_string
  end
  echo \n
  continue
end
continue
info breakpoints
