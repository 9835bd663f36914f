/* Rank 3 waits for a shell, and the shell waits for a program that locks a mutex twice. */
#include "begin.h"
#include <pthread.h>

static void help(void) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&lock);
}

int main(int argc, char **argv) {
    char command[4096];
    if (argc > 1)
        help();
    begin();
    if (rank == 3) {
        snprintf(command, sizeof command, "'%s' help; true", argv[0]);
        return system(command);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
