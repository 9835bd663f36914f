/* Slow but healthy programs, selected by name. Each runs until it is killed. */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
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

/* Waits with a timeout. */
static struct timespec in_a_minute(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += 60;
    return time;
}

static void timed_condition(void) {
    struct timespec end = in_a_minute();
    if (rank == 3) {
        pthread_mutex_lock(&lock);
        pthread_cond_timedwait(&news, &lock, &end);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void timed_locks(void) {
    struct timespec end = in_a_minute();
    pthread_mutex_lock(&lock);
    if (rank == 3)
        pthread_mutex_timedlock(&lock, &end);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void timed_semaphore(void) {
    struct timespec end = in_a_minute();
    sem_t work;
    sem_init(&work, 0, 0);
    if (rank == 3)
        sem_timedwait(&work, &end);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Waits for other processes or for signals. */
static void *shared(void) {
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static int begins_child(void) {
    int child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child == 0;
}

static void semaphore_of_a_child(void) {
    sem_t *done = shared();
    sem_init(done, 1, 0);
    if (rank == 3) {
        if (begins_child())
            compute(1000);
        sem_wait(done);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void lock_of_a_child(void) {
    pthread_mutex_t *lock = shared();
    volatile int *locked = (volatile int *)(lock + 1);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &attributes);
    if (rank == 3) {
        if (begins_child()) {
            pthread_mutex_lock(lock);
            *locked = 1;
            compute(1000);
        }
        while (!*locked)
            usleep(1000);
        pthread_mutex_lock(lock);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One of two child processes waits for the other, and the rank waits for both. */
static void lock_of_two_children(void) {
    pthread_mutex_t *lock = shared();
    volatile int *locked = (volatile int *)(lock + 1);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &attributes);
    if (rank == 3) {
        if (begins_child()) {
            pthread_mutex_lock(lock);
            *locked = 1;
            sleep(1000);
        }
        while (!*locked)
            usleep(1000);
        if (begins_child())
            pthread_mutex_lock(lock);
        wait(NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static sem_t alarms;
static void alarm_comes(int signal) { sem_post(&alarms); }

static void semaphore_of_a_timer(void) {
    struct itimerval often = {{3, 0}, {3, 0}};
    if (rank == 3) {
        sem_init(&alarms, 0, 0);
        signal(SIGALRM, alarm_comes);
        setitimer(ITIMER_REAL, &often, NULL);
        for (;;)
            sem_wait(&alarms);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void barrier_of_processes(void) {
    MPI_Win window;
    MPI_Aint size;
    int unit;
    pthread_barrier_t *all, *own;
    pthread_barrierattr_t attributes;
    MPI_Win_allocate_shared(rank == 0 ? 4096 : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    MPI_Win_shared_query(window, 0, &size, &unit, &all);
    if (rank == 0) {
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(all, &attributes, ranks);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 3)
        compute(1000);
    pthread_barrier_wait(all);
}

/* A thread like those in which a BLAS library computes: `dbgr` recognizes them by this name. */
__attribute__((noinline)) static void *blas_thread_server(void *nothing) {
    compute(1000);
    return nothing;
}

static void threads_of_a_library(void) {
    pthread_t thread;
    if (rank == 3) {
        pthread_create(&thread, NULL, blas_thread_server, NULL);
        pthread_mutex_lock(&lock);
        pthread_cond_wait(&news, &lock);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Waits for other jobs. */
static char *program;

static void spawned_job(void) {
    char *arguments[] = {"spawned", NULL};
    MPI_Comm children;
    int word;
    MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    MPI_Recv(&word, 1, MPI_INT, 0, 0, children, MPI_STATUS_IGNORE);
}

static void spawned_sleeper(void) {
    char *arguments[] = {"sleeping", NULL};
    MPI_Comm children;
    int word;
    MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    MPI_Recv(&word, 1, MPI_INT, 0, 0, children, MPI_STATUS_IGNORE);
}

static void spawned(void) { compute(1000); }
static void sleeping(void) { sleep(1000); }

static void server(void) {
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm client;
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &client);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Waits for a message as if from a joined job: no launcher of these tests can connect two of its jobs. */
static void joined(void) {
    int word;
    MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Windows and files. */
static void many_accesses(void) {
    int *own, word = 0;
    MPI_Win window;
    MPI_Win_allocate(sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    if (rank == 0)
        for (;;) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
            MPI_Put(&word, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
            MPI_Win_unlock(1, window);
        }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void lock_of_a_window(void) {
    int *own, word = 0;
    MPI_Win window;
    MPI_Win_allocate(sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    for (;;) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
        compute(0.7);
        MPI_Win_unlock(0, window);
    }
}

static void epochs(void) {
    int *own, word = 0, next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    MPI_Win window;
    MPI_Group all, from, to;
    MPI_Win_allocate(sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &last, &from);
    MPI_Group_incl(all, 1, &next, &to);
    for (;;) {
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(&word, 1, MPI_INT, next, 0, 1, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        compute(0.05 * (rank + 1));
    }
}

static void open_own(MPI_File *file, MPI_Comm ranks, const char *name) {
    MPI_File_open(ranks, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, file);
    unlink(name);
}

static void file_of_one(void) {
    static char block[1 << 20];
    char name[] = "/tmp/healthy-XXXXXX";
    MPI_File file;
    if (rank == 0) {
        close(mkstemp(name));
        open_own(&file, MPI_COMM_SELF, name);
        for (;;) {
            MPI_File_write_at_all(file, 0, block, sizeof block, MPI_CHAR, MPI_STATUS_IGNORE);
            MPI_File_sync(file);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Ranks that exchange many messages. */
static void neighbors(void) {
    int sides[2] = {(rank + 1) % ranks, (rank + ranks - 1) % ranks}, mine[2] = {0}, theirs[2];
    MPI_Comm ring;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sides, MPI_UNWEIGHTED, 2, sides, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &ring);
    for (;;) {
        MPI_Neighbor_alltoall(mine, 1, MPI_INT, theirs, 1, MPI_INT, ring);
        compute(0.05 * (rank + 1));
    }
}

static void halo(void) {
    int mine[2] = {0}, theirs[2], sides[2] = {(rank + 1) % ranks, (rank + ranks - 1) % ranks};
    MPI_Request requests[4];
    for (;;) {
        for (int i = 0; i < 2; i++) {
            MPI_Irecv(&theirs[i], 1, MPI_INT, sides[i], 0, MPI_COMM_WORLD, &requests[i]);
            MPI_Isend(&mine[i], 1, MPI_INT, sides[i], 0, MPI_COMM_WORLD, &requests[i + 2]);
        }
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        compute(0.02);
    }
}

static void two_collectives(void) {
    int word = 0;
    for (;;) {
        MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* User functions that MPI calls, and signal handlers. */
static void slow_sum(void *in, void *out, int *count, MPI_Datatype *type) {
    (void)type;
    if (rank == 3)
        compute(1000);
    for (int i = 0; i < *count; i++)
        ((int *)out)[i] += ((int *)in)[i];
}

static void operation(void) {
    int one = 1, sum;
    MPI_Op own;
    MPI_Op_create(slow_sum, 1, &own);
    MPI_Reduce(&one, &sum, 1, MPI_INT, own, 3, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void complain(MPI_Comm *where, int *error, ...) {
    (void)where, (void)error;
    compute(1000);
}

static void error_handler(void) {
    MPI_Errhandler own;
    if (rank == 3) {
        MPI_Comm_create_errhandler(complain, &own);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, own);
        MPI_Send(NULL, 0, MPI_INT, 7, 0, MPI_COMM_SELF);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void save(int signal) {
    (void)signal;
    compute(1000);
}

static void signal_handler(void) {
    struct itimerval soon = {{0, 0}, {0, 100000}};
    int word = 0;
    if (rank == 3) {
        signal(SIGALRM, save);
        setitimer(ITIMER_REAL, &soon, NULL);
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 0) {
        compute(1);
        MPI_Send(&word, 1, MPI_INT, 3, 0, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Ranks that continue without one rank, which is killed. */
static void survivors(void) {
    MPI_Comm rest;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 3, rank, &rest);
    printf("split\n");
    fflush(stdout);
    for (;;) {
        compute(rank == 3 ? 1 : 0.1 * (rank + 1));
        MPI_Barrier(rest);
    }
}

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
    {"timed_condition", timed_condition},
    {"timed_locks", timed_locks},
    {"timed_semaphore", timed_semaphore},
    {"semaphore_of_a_child", semaphore_of_a_child},
    {"lock_of_a_child", lock_of_a_child},
    {"lock_of_two_children", lock_of_two_children},
    {"semaphore_of_a_timer", semaphore_of_a_timer},
    {"barrier_of_processes", barrier_of_processes},
    {"threads_of_a_library", threads_of_a_library},
    {"spawned_job", spawned_job},
    {"spawned_sleeper", spawned_sleeper},
    {"server", server},
    {"joined", joined},
    {"many_accesses", many_accesses},
    {"lock_of_a_window", lock_of_a_window},
    {"epochs", epochs},
    {"file_of_one", file_of_one},
    {"neighbors", neighbors},
    {"halo", halo},
    {"two_collectives", two_collectives},
    {"operation", operation},
    {"error_handler", error_handler},
    {"signal_handler", signal_handler},
    {"survivors", survivors},
    {"spawned", spawned},
    {"sleeping", sleeping},
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
    program = argv[0];
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
