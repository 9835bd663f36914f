/* A program that calls a library through stubs or directly through slots, and whose calls at the end of a function are
   jumps. Each exported function of the library jumps to a function that has no name after the symbols are stripped. */
#include <stdio.h>
#include <unistd.h>

int gather(int number);

#ifdef LIBRARY

static volatile int calls;

static __attribute__((noinline)) int part(int number)
{
    puts("ready");
    fflush(stdout);
    while (calls < number)
        pause();
    return ++calls;
}

int gather(int number)
{
    calls = 0;
    return part(number + 1);
}

#else

__attribute__((noinline)) int exchange(int number)
{
    return gather(number) + 1;
}

__attribute__((noinline)) void finish(int number)
{
    usleep(1);
    exchange(number);
}

__attribute__((noinline)) void leave(int number)
{
    usleep(1);
    gather(number);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        leave(argc);
    else
        finish(argc);
    puts("never");
    return 0;
}

#endif
