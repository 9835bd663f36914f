// An error handler throws or jumps out of a call, and the next call comes from deeper down; a callback of a reduction calls MPI, and a child of a fork does too little to be recorded.
#include <mpi.h>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

static void thrown(MPI_Comm *, int *, ...) { throw std::runtime_error("thrown"); }

static void sum(void *in, void *inout, int *count, MPI_Datatype *type) {
    int size;
    MPI_Type_size(*type, &size);
    for (int i = 0; i < *count; i++)
        static_cast<int *>(inout)[i] += static_cast<int *>(in)[i];
}

static std::jmp_buf before;

static void jumped(MPI_Comm *, int *, ...) { std::longjmp(before, 1); }

// Uses the stack on which the call was that has been left.
[[gnu::noinline]] static void from_deeper(int rank) {
    volatile char used[8192];
    std::memset(const_cast<char *>(used), 0xff, sizeof used);
    int word = used[rank];
    if (rank == 1)
        MPI_Send(&word, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
    else
        MPI_Recv(&word, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int rank, word = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(thrown, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    try {
        MPI_Send(&word, 1, MPI_INT, 77, 0, MPI_COMM_SELF);
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
    }
    from_deeper(rank);
    MPI_Comm_create_errhandler(jumped, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    if (setjmp(before) == 0)
        MPI_Send(&word, 1, MPI_INT, 77, 0, MPI_COMM_SELF);
    from_deeper(rank);
    MPI_Op op;
    MPI_Op_create(sum, 1, &op);
    MPI_Allreduce(&rank, &all, 1, MPI_INT, op, MPI_COMM_WORLD);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, nullptr, 0);
    std::printf("ready %d\n", all);
    std::fflush(stdout);
    if (rank == 0)
        MPI_Recv(&word, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
