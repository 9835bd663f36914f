/* Four threads of every rank send to the same thread of the next rank concurrently, each in its own communicator. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 60 };

static MPI_Comm comms[THREADS];

static void *talk(void *argument)
{
    int thread = *(int *)argument;
    MPI_Comm comm = comms[thread];
    int rank = rank_in(comm), size = size_of(comm);
    int before = (rank + size - 1) % size, after = (rank + 1) % size;
    for (int round = 0; round < ROUNDS; round++) {
        int out = (rank * THREADS + thread) * ROUNDS + round, in = -1, sum = 0;
        CHECK(MPI_Sendrecv(&out, 1, MPI_INT, after, thread, &in, 1, MPI_INT, before, thread, comm, MPI_STATUS_IGNORE)
              == MPI_SUCCESS);
        CHECK(in == (before * THREADS + thread) * ROUNDS + round);
        if (round % 20 == 0) {
            CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
            CHECK(sum == size * (size - 1) / 2);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, numbers[THREADS];
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++)
        CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]) == MPI_SUCCESS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, talk, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&comms[i]);
    say(MPI_COMM_WORLD, "threads: right");
    MPI_Finalize();
    return 0;
}
