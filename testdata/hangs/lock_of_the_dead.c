/* Rank 3 waits for a lock in shared memory whose owner has exited. */
#include "begin.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

int main(void) {
    pthread_mutex_t *lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t shared;
    begin();
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &shared);
    if (rank == 3) {
        if (fork() == 0) {
            pthread_mutex_lock(lock);
            _exit(0);
        }
        wait(NULL);
        pthread_mutex_lock(lock);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
