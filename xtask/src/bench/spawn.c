/* The lower bound: posix_spawn of N copies of a program, then wait for all. No pipes, process groups or limits. */
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1, failures = 0, status;
    char *program[] = {"/bin/true", NULL};
    for (int i = 0; i < count; i++) {
        pid_t pid;
        if (posix_spawn(&pid, program[0], NULL, NULL, program, environ))
            return 1;
    }
    while (wait(&status) > 0)
        failures += status != 0;
    return failures != 0;
}
