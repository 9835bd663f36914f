# What a debugger that knows MPIR does with a starter whose job runs: it reads the table, by type where there are types.
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
