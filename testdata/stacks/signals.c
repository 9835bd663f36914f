/* Sleeps in a signal handler that has interrupted a computation; with an argument, the handler runs on an alternate stack. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

volatile long turns;

static void handler(int signal) {
    (void)signal;
    write(1, "ready\n", 6);
    for (;;) {
        pause();
    }
}

__attribute__((noinline)) static void compute(void) {
    for (;;) {
        turns++;
    }
}

int main(int argc, char **argv) {
    (void)argv;
    struct sigaction action = {.sa_handler = handler};
    if (argc > 1) {
        stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
        sigaltstack(&stack, 0);
        action.sa_flags = SA_ONSTACK;
    }
    sigaction(SIGALRM, &action, 0);
    ualarm(20000, 0);
    compute();
}
