/* A function that ends with a jump to another function, which has no name after the symbols are stripped. */
#include <stdio.h>
#include <unistd.h>

static volatile int calls;

static __attribute__((noinline)) int part(int number)
{
    puts("ready");
    fflush(stdout);
    while (calls < number)
        pause();
    return ++calls;
}

__attribute__((noinline)) int inner(int number)
{
    calls = 0;
    return part(number + 1);
}

__attribute__((noinline)) int outer(int number)
{
    return inner(number) + 1;
}

int main(int argc, char **argv)
{
    (void)argv;
    return outer(argc) + 1;
}
