/* Two threads take two locks in opposite order. */
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *first(void *nothing) {
    pthread_mutex_lock(&a);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&b);
    pthread_mutex_unlock(&b);
    return nothing;
}

static void *second(void *nothing) {
    pthread_mutex_lock(&b);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&a);
    pthread_mutex_unlock(&a);
    return nothing;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&threads[0], NULL, first, NULL);
    pthread_create(&threads[1], NULL, second, NULL);
    printf("ready\n");
    fflush(stdout);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return 0;
}
