/* Rank 3 accesses the window of rank 0, which never exposes it. */
#include "begin.h"

int main(void) {
    int word = 0, owner = 0;
    MPI_Win window;
    MPI_Group all, owners;
    begin();
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &owner, &owners);
    if (rank == 3) {
        MPI_Win_start(owners, 0, window);
        MPI_Put(&word, 1, MPI_INT, owner, 0, 1, MPI_INT, window);
        MPI_Win_complete(window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
