# Does what an MPIR debugger does with the starter of a running job: reads the process table by its type.
set pagination off
set confirm off
set height 0
set language c
set $rank = 0
while $rank < MPIR_proctable_size
  set $row = &MPIR_proctable[$rank]
  printf "rank %d host %s pid %d program %s\n", $rank, $row->host_name, $row->pid, $row->executable_name
  set $rank = $rank + 1
end
echo table read\n
shell while ! [ -e leave ]; do sleep 0.05; done
detach
