/* Rank 3 waits for a semaphore that is never posted. */
#include "begin.h"
#include <semaphore.h>

int main(void) {
    sem_t work;
    begin();
    sem_init(&work, 0, 0);
    if (rank == 3)
        sem_wait(&work);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
