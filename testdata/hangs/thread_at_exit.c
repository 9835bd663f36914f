/* An exit handler joins a thread that waits for a condition variable that is never signalled. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_t worker;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;

static void *work(void *nothing) {
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&told, &lock);
    return nothing;
}

static void end(void) {
    pthread_join(worker, NULL);
}

int main(void) {
    atexit(end);
    pthread_create(&worker, NULL, work, NULL);
    printf("ready\n");
    fflush(stdout);
    return 0;
}
