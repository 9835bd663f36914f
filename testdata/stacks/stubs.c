/* A program whose calls of a library lead through stubs, or through slots alone, and are made by jumps where they stand at
   the end of a function. What the library exports jumps on into what has no name once its symbols are gone. */
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
