/*
 * The program of `cargo xtask bench mpi`.
 *
 * hello      MPI_Init, the rank, MPI_Finalize.
 * steps N    N times about a millisecond of local work, then a barrier.
 * spawn N R  spawns R ranks of this program N times, one after another; rank 0 prints the total time in seconds.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void compute(void)
{
    volatile double value = 1;
    for (int i = 0; i < 500000; i++)
        value = value * 1.0000001;
}

int main(int argc, char **argv)
{
    MPI_Comm other;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&other);
    if (other != MPI_COMM_NULL) {
        MPI_Comm_disconnect(&other);
    } else if (argc == 4 && strcmp(argv[1], "spawn") == 0) {
        double begin = MPI_Wtime();
        for (int i = atoi(argv[2]); i > 0; i--) {
            MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, atoi(argv[3]), MPI_INFO_NULL, 0, MPI_COMM_SELF, &other,
                           MPI_ERRCODES_IGNORE);
            MPI_Comm_disconnect(&other);
        }
        printf("%f\n", MPI_Wtime() - begin);
    } else if (argc == 3 && strcmp(argv[1], "steps") == 0) {
        for (int i = atoi(argv[2]); i > 0; i--) {
            compute();
            MPI_Barrier(MPI_COMM_WORLD);
        }
    } else {
        int rank, size;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        printf("hello from %d of %d\n", rank, size);
    }
    MPI_Finalize();
    return 0;
}
