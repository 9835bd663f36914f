# Does what an MPIR debugger does that has its servers started by the launcher. `$when` says when it writes what it wants: 0 at the start,
# 1 in the breakpoint.
set pagination off
set confirm off
set height 0
set language c
define want
  set var MPIR_executable_path = "/bin/sh"
  # The words -c, SCRIPT, two words and an end.
  python
import gdb
words = [b"-c", gdb.convenience_variable("script").string().encode(), b"two words", b"'quoted'", b"", b""]
place = int(gdb.parse_and_eval("(long)&MPIR_server_arguments"))
gdb.selected_inferior().write_memory(place, b"\0".join(words))
  end
end
starti
set var MPIR_being_debugged = 1
if $when == 0
  want
end
break MPIR_Breakpoint
continue
echo at the breakpoint\n
shell while ! [ -e go ]; do sleep 0.05; done
if $when == 1
  want
end
delete
continue
