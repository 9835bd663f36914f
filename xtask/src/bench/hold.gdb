# An MPIR debugger: prints the time from `run` to the breakpoint, and how many ranks are stopped there.
set pagination off
set confirm off
set language c
python import time
python began = time.monotonic()
starti
set var MPIR_being_debugged = 1
break MPIR_Breakpoint
continue
python took = time.monotonic() - began
python table = gdb.parse_and_eval("MPIR_proctable")
python pids = [int(table[i]["pid"]) for i in range(int(gdb.parse_and_eval("MPIR_proctable_size")))]
python stats = [open("/proc/%d/stat" % pid).read() for pid in pids]
python print("run-to-breakpoint %f held %d" % (took, sum(stat.rsplit(") ", 1)[1][0] == "T" for stat in stats)))
delete
continue
