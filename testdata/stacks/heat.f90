! Sleeps in a module procedure, called by an external subroutine.
module solver
  implicit none
contains
  subroutine step(n)
    integer, intent(in) :: n
    print '(a)', 'ready'
    flush (6)
    call sleep(1000 + n)
  end subroutine step
end module solver

subroutine exchange(n)
  use solver
  implicit none
  integer, intent(in) :: n
  call step(n)
end subroutine exchange

program heat
  implicit none
  call exchange(3)
end program heat
