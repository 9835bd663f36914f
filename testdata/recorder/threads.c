/* Several threads call MPI. As the argument says: eight: that many exchange messages with the other rank for ever; come-and-go: 200 do so
   once, a few at a time; then, each rank waits for a message that the other one does not send. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define AT_A_TIME 8
#define TIMES 25

static int rank, endless;
static MPI_Comm comms[AT_A_TIME];

static void *exchange(void *number) {
    int own = (int)(long)number, word;
    do
        MPI_Sendrecv(&own, 1, MPI_INT, 1 - rank, own, &word, 1, MPI_INT, 1 - rank, own, comms[own], MPI_STATUS_IGNORE);
    while (endless);
    return NULL;
}

int main(int argc, char **argv) {
    int level, word;
    pthread_t threads[AT_A_TIME];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (level != MPI_THREAD_MULTIPLE)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < AT_A_TIME; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    endless = !strcmp(argv[1], "eight");
    if (endless) {
        printf("ready\n");
        fflush(stdout);
    }
    for (int time = 0; time < TIMES; time++) {
        for (long i = 0; i < AT_A_TIME; i++)
            pthread_create(&threads[i], NULL, exchange, (void *)i);
        for (int i = 0; i < AT_A_TIME; i++)
            pthread_join(threads[i], NULL);
    }
    printf("ready\n");
    fflush(stdout);
    MPI_Recv(&word, 1, MPI_INT, 1 - rank, 3, comms[3], MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
