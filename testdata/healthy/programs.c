/* Slow programs that are well, one for each name. Each runs until it is ended. */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rank, ranks;
static volatile double sink;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void compute(double seconds) {
    double end = now() + seconds;
    while (now() < end)
        for (int i = 0; i < 10000; i++)
            sink += i * 0.5;
}

static void load_imbalance(void) {
    int one = 1, sum;
    for (;;) {
        compute(0.05 + 0.3 * rank);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void very_late(void) {
    for (;;) {
        if (rank == 3)
            compute(20);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void tight_collectives(void) {
    int one = 1, sum;
    for (;;)
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void master_worker(void) {
    int task = 0;
    MPI_Status status;
    for (;;)
        if (rank == 0) {
            MPI_Recv(&task, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
            MPI_Send(&task, 1, MPI_INT, status.MPI_SOURCE, 0, MPI_COMM_WORLD);
        } else {
            MPI_Send(&task, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
            MPI_Recv(&task, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &status);
            compute(0.5 * rank);
        }
}

static void idle_workers(void) {
    int task = 0;
    if (rank == 0)
        for (;;)
            compute(1);
    MPI_Recv(&task, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void writing(void) {
    char block[1 << 16], name[] = "/tmp/healthy-XXXXXX";
    if (rank == 3) {
        int file = mkstemp(name);
        unlink(name);
        memset(block, 1, sizeof block);
        for (int n = 0;; n++) {
            if (pwrite(file, block, sizeof block, (n % 64) * sizeof block) < 0)
                abort();
            fdatasync(file);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void polling_server(void) {
    int there = 0;
    if (rank == 0)
        for (;;) {
            MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
            usleep(100000);
        }
    MPI_Recv(&there, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void sleeper(void) {
    if (rank == 0)
        for (;;)
            sleep(100);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void pipeline(void) {
    int item = 0;
    for (;;) {
        if (rank > 0)
            MPI_Recv(&item, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        compute(0.2);
        if (rank + 1 < ranks)
            MPI_Ssend(&item, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);
    }
}

static void ping_pong(void) {
    int ball = 0, other = rank ^ 1;
    for (;;) {
        if (rank % 2 == 0) {
            MPI_Send(&ball, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
            MPI_Recv(&ball, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&ball, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&ball, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
        }
        compute(0.01);
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static int items;

static void *produce(void *nothing) {
    for (;;) {
        usleep(300000);
        pthread_mutex_lock(&lock);
        items++;
        pthread_cond_signal(&news);
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

static void *consume(void *nothing) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (items == 0)
            pthread_cond_wait(&news, &lock);
        items--;
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

static void *contend(void *nothing) {
    for (;;) {
        pthread_mutex_lock(&lock);
        compute(0.7);
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

static void *hold(void *nothing) {
    pthread_mutex_lock(&lock);
    sleep(1000);
    return nothing;
}

static void threads(void *(*one)(void *), void *(*others)(void *)) {
    pthread_t all[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&all[i], NULL, i ? others : one, NULL);
    pthread_join(all[0], NULL);
}

static void producer_consumer(void) { threads(produce, consume); }
static void contention(void) { threads(contend, contend); }
static void lock_of_a_sleeper(void) { threads(hold, contend); }

static void openmp(void) {
    for (;;) {
#pragma omp parallel
        compute(rank == 3 ? 0.5 : 0.1);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void allocation(void) {
    size_t size = 64 << 20;
    for (;;) {
        if (rank == 3)
            for (int i = 0; i < 20; i++) {
                char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                memset(memory, 1, size);
                munmap(memory, size);
            }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void child(void) {
    if (rank == 3 && system("sleep 1000") != 0)
        abort();
    MPI_Barrier(MPI_COMM_WORLD);
}

static void reader(void) {
    char byte;
    int ends[2];
    if (rank == 0 && pipe(ends) == 0 && read(ends[0], &byte, 1) < 0)
        abort();
    MPI_Bcast(&byte, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void components(void) {
    MPI_Comm own;
    int word = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &own);
    for (;;) {
        compute(rank % 2 ? 0.2 : 0.1);
        if (rank % 2)
            MPI_Barrier(own);
        else
            MPI_Bcast(&word, 1, MPI_INT, 0, own);
    }
}

static void startup(void) {}

static const struct {
    const char *name;
    void (*run)(void);
} programs[] = {
    {"load_imbalance", load_imbalance},
    {"very_late", very_late},
    {"tight_collectives", tight_collectives},
    {"master_worker", master_worker},
    {"idle_workers", idle_workers},
    {"writing", writing},
    {"polling_server", polling_server},
    {"sleeper", sleeper},
    {"pipeline", pipeline},
    {"ping_pong", ping_pong},
    {"producer_consumer", producer_consumer},
    {"contention", contention},
    {"lock_of_a_sleeper", lock_of_a_sleeper},
    {"openmp", openmp},
    {"allocation", allocation},
    {"child", child},
    {"reader", reader},
    {"components", components},
    {"startup", startup},
};

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "startup") == 0 && strcmp(getenv("PMI_RANK"), "3") == 0) {
        printf("ready\n");
        fflush(stdout);
        for (;;)
            compute(1);
    }
    if (argc > 1 && strcmp(argv[1], "startup") == 0) {
        printf("ready\n");
        fflush(stdout);
    }
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("ready\n");
    fflush(stdout);
    for (unsigned i = 0; argc > 1 && i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].name, argv[1]) == 0)
            programs[i].run();
    MPI_Finalize();
    return 0;
}
