! Rank 0 waits for a message that rank 1 never sends, because that is in a collective operation of a communicator of theirs.
program hang
#ifdef F08
  use mpi_f08
  implicit none
  type(MPI_Comm) :: pair
  type(MPI_Request) :: requests(2)
#else
  use mpi
  implicit none
  integer :: pair, requests(2)
#endif
  integer :: rank, error, words(2) = 0
  call MPI_Init(error)
  call MPI_Comm_split(MPI_COMM_WORLD, 0, 0, pair, error)
  call MPI_Comm_rank(pair, rank, error)
  call MPI_Comm_set_name(pair, 'pair', error)
  print '(a)', 'ready'
  flush (6)
  if (rank == 0) then
    call MPI_Irecv(words(1), 1, MPI_INTEGER, 1, 5, pair, requests(1), error)
    call MPI_Irecv(words(2), 1, MPI_INTEGER, 1, 6, pair, requests(2), error)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
  else
    call MPI_Send(words(1), 1, MPI_INTEGER, 0, 5, pair, error)
  end if
  call MPI_Bcast(words, 2, MPI_INTEGER, 0, pair, error)
  call MPI_Finalize(error)
end program hang
