/* Rank 3 exposes its window to rank 0, which never starts an access epoch. */
#include "begin.h"

int main(void) {
    int word = 0, user = 0;
    MPI_Win window;
    MPI_Group all, users;
    begin();
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &user, &users);
    if (rank == 3) {
        MPI_Win_post(users, 0, window);
        MPI_Win_wait(window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
