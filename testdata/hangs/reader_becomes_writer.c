/* Rank 3 holds a read lock while its thread waits for the write lock. */
#include "begin.h"
#include <pthread.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

static void *change(void *nothing) {
    pthread_rwlock_wrlock(&table);
    return nothing;
}

int main(void) {
    pthread_t thread;
    begin();
    if (rank == 3) {
        pthread_rwlock_rdlock(&table);
        pthread_create(&thread, NULL, change, NULL);
        pthread_join(thread, NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
