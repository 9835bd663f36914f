/*
 * A node is lost while the ranks work: its daemon is killed. The ranks of other nodes get an error, agree on the survivors, and continue
 * without it. Needs Open MPI 5 with `mpi_ft_enable`.
 */
#include "check.h"

#include <mpi-ext.h>

int main(int argc, char **argv)
{
    int size, code, class, one = 1, sum = 0, flag = 1;
    MPI_Comm left;
    MPI_Init(&argc, &argv);
    size = size_of(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    say(MPI_COMM_WORLD, "up");
    do {
        code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } while (code == MPI_SUCCESS);
    MPI_Error_class(code, &class);
    CHECK(class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED);
    CHECK(MPIX_Comm_revoke(MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPIX_Comm_shrink(MPI_COMM_WORLD, &left) == MPI_SUCCESS);
    CHECK(size_of(left) < size);
    CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, left) == MPI_SUCCESS && sum == size_of(left));
    CHECK(MPIX_Comm_agree(left, &flag) == MPI_SUCCESS && flag == 1);
    say(left, "those who are left went on");
    MPI_Comm_free(&left);
    MPI_Finalize();
    return 0;
}
