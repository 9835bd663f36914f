/* One thread holds a lock, one waits for it, one waits for a condition variable, and one joins another thread. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t begin;

static void *holder(void *nothing) {
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&begin);
    pause();
    return nothing;
}

static void *waiter(void *nothing) {
    pthread_barrier_wait(&begin);
    pthread_mutex_lock(&lock);
    return nothing;
}

static void *listener(void *nothing) {
    pthread_mutex_lock(&other);
    pthread_cond_wait(&condition, &other);
    return nothing;
}

int main(void) {
    pthread_t threads[3];
    pthread_barrier_init(&begin, 0, 3);
    pthread_create(&threads[0], 0, holder, 0);
    pthread_create(&threads[1], 0, waiter, 0);
    pthread_create(&threads[2], 0, listener, 0);
    pthread_barrier_wait(&begin);
    printf("ready\n");
    fflush(stdout);
    pthread_join(threads[1], 0);
}
