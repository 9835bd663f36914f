// Ranks wait with the tag that an exception has given them, or its absence. The code that handles the exception is far away, and jumps
// back.
#include <mpi.h>
#include <cstdio>
#include <vector>

__attribute__((noinline)) static void check(int rank) {
    if (rank == 1)
        throw rank;
    __asm__ volatile("");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, word = 0, tag;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<int> destroyed(10);
    puts("ready");
    fflush(stdout);
    try {
        check(rank);
        tag = 8;
    } catch (int) {
        tag = 5;
    }
    MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return destroyed[0];
}
