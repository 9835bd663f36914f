/* The last rank does what its argument says; the others wait in a function of their own until they are killed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void wait_here(void)
{
    for (;;)
        pause();
}

static void *nothing(void *unused)
{
    return unused;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RALLY_RANK");
    const char *what = argc > 1 ? argv[1] : "";
    if (argc < 3) {
        puts("ready");
        fflush(stdout);
    }
    if (rank == NULL || strcmp(rank, "3") != 0 || strcmp(what, "wait") == 0)
        wait_here();
    if (strcmp(what, "exec") == 0)
        execl("/proc/self/exe", argv[0], what, "again", NULL);
    while (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    while (strcmp(what, "threads") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return 2;
}
