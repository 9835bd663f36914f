/* Sleeps on a stack that the program has set up itself. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

static ucontext_t here, there;

__attribute__((noinline)) static void inner(void) {
    printf("ready\n");
    fflush(stdout);
    sleep(1000);
}

static void routine(void) {
    inner();
    printf("never\n");
}

int main(void) {
    getcontext(&there);
    there.uc_stack.ss_sp = malloc(65536);
    there.uc_stack.ss_size = 65536;
    there.uc_link = &here;
    makecontext(&there, routine, 0);
    swapcontext(&here, &there);
}
