/* Rank 3 takes a lock that it already holds. */
#include "begin.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int main(void) {
    begin();
    pthread_mutex_lock(&lock);
    if (rank == 3)
        pthread_mutex_lock(&lock);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
