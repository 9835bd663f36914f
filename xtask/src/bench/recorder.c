/* Times of calls of MPI in nanoseconds, the least of many batches: one line for each, `NAME NANOSECONDS`. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

#define CALLS 50000
#define BATCHES 40
#define MEASURE(name, call)                                                                                                    \
    do {                                                                                                                       \
        double best = 1e18;                                                                                                    \
        for (int batch = 0; batch < BATCHES; batch++) {                                                                        \
            double begin = now();                                                                                              \
            for (int i = 0; i < CALLS; i++) {                                                                                  \
                call;                                                                                                          \
            }                                                                                                                  \
            double each = (now() - begin) / CALLS;                                                                             \
            if (each < best)                                                                                                   \
                best = each;                                                                                                   \
        }                                                                                                                      \
        printf("%s %.2f\n", name, best);                                                                                       \
    } while (0)

static void local(void) {
    int number, flag;
    MPI_Request request;
    MPI_Comm twin;
    MPI_Comm_dup(MPI_COMM_SELF, &twin);
    MEASURE("repeated", MPI_Comm_rank(MPI_COMM_WORLD, &number));
    MEASURE("poll", MPI_Iprobe(0, 3, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    MEASURE("call", if (i & 1) MPI_Comm_rank(MPI_COMM_WORLD, &number); else MPI_Comm_size(MPI_COMM_WORLD, &number));
    MEASURE("collective", MPI_Barrier(MPI_COMM_SELF));
    MEASURE("communicators", MPI_Barrier(i & 1 ? MPI_COMM_SELF : twin));
    MEASURE("send", MPI_Send(NULL, 0, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_SELF));
    MEASURE("request", MPI_Irecv(NULL, 0, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_SELF, &request); MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* Time of one message of 8 bytes, one way. */
static void ping_pong(int rank) {
    double word = 0, best = 1e18;
    for (int batch = 0; batch < BATCHES; batch++) {
        int rounds = 5000;
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now();
        for (int i = 0; i < rounds; i++) {
            if (rank == 0) {
                MPI_Send(&word, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
                MPI_Recv(&word, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(&word, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(&word, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
            }
        }
        double each = (now() - begin) / rounds / 2;
        if (each < best)
            best = each;
    }
    if (rank == 0)
        printf("ping-pong %.2f\n", best);
}

#define THREADS 4
#define COMMUNICATORS 16

static void *calls(void *communicators) {
    MPI_Comm *all = communicators;
    int rank;
    for (int i = 0; i < 1000; i++)
        MPI_Comm_rank(all[i % COMMUNICATORS], &rank);
    return NULL;
}

/* Memory of the region of this process in KiB, after calls of some threads on some communicators, and a message on each. */
static void memory(void) {
    char line[1024];
    int rank, sent = 0, received;
    MPI_Comm all[COMMUNICATORS];
    pthread_t threads[THREADS - 1];
    for (int i = 0; i < COMMUNICATORS; i++) {
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &all[i]);
        MPI_Comm_rank(all[i], &rank);
        MPI_Irecv(&received, 1, MPI_INT, rank, i, all[i], &request);
        MPI_Send(&sent, 1, MPI_INT, rank, i, all[i]);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < THREADS - 1; i++)
        pthread_create(&threads[i], NULL, calls, all);
    calls(all);
    for (int i = 0; i < THREADS - 1; i++)
        pthread_join(threads[i], NULL);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/');
        struct stat region;
        if (!path || !strstr(path, "/rally-calls."))
            continue;
        path[strcspn(path, "\n")] = 0;
        if (stat(path, &region) == 0)
            printf("memory %ld\n", (long)region.st_blocks / 2);
        break;
    }
    fclose(maps);
}

/* Waits until it is killed, after a message to itself. */
static void sleeps(void) {
    int word = 0, got;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &request);
    MPI_Send(&word, 1, MPI_INT, 0, 3, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    int rank, level;
    if (strcmp(argv[1], "memory") == 0)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(argv[1], "ping-pong") == 0)
        ping_pong(rank);
    else if (strcmp(argv[1], "local") == 0)
        local();
    else if (strcmp(argv[1], "memory") == 0)
        memory();
    else if (strcmp(argv[1], "sleep") == 0)
        sleeps();
    MPI_Finalize();
    return 0;
}
