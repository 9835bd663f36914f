/* Has no MPI, and asks for it as programs do that work with and without it. */
#include <stdio.h>

extern int MPI_Init(int *, char ***) __attribute__((weak));
extern int MPI_Barrier(int) __attribute__((weak));

int main(int argc, char **argv) {
    if (MPI_Init)
        MPI_Init(&argc, &argv);
    if (MPI_Barrier)
        MPI_Barrier(0);
    puts("ready");
    return 0;
}
