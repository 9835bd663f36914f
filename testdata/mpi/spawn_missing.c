/* Spawning a nonexistent program fails; the caller gets an error and continues. */
#include "check.h"

int main(int argc, char **argv)
{
    int errors[2] = {MPI_SUCCESS, MPI_SUCCESS}, code, size, one = 1, sum = 0;
    MPI_Comm children;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Comm_spawn("./there-is-no-such-program", MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                          errors);
    CHECK(code != MPI_SUCCESS);
    size = size_of(MPI_COMM_WORLD);
    CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && sum == size);
    say(MPI_COMM_WORLD, "nobody came");
    MPI_Finalize();
    return 0;
}
