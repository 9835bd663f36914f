/* Rank 3 waits for a condition variable that was signalled before the wait. */
#include "begin.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;

int main(void) {
    begin();
    if (rank == 3) {
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&told);
        pthread_cond_wait(&told, &lock);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
