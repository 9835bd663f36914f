/* A tool that uses the profiling interface: it counts calls, and passes them on. With REPLACES, it also makes a communicator for itself in
   MPI_Init, and sends in its own way. */
#include <mpi.h>
#include <stdio.h>

static int calls;

#ifdef REPLACES
static MPI_Comm own;

int MPI_Init(int *argc, char ***argv) {
    int error = PMPI_Init(argc, argv);
    PMPI_Comm_dup(MPI_COMM_WORLD, &own);
    return error;
}
#endif

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *twin) {
    calls++;
    return PMPI_Comm_dup(comm, twin);
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    calls++;
    return PMPI_Allreduce(from, to, count, type, op, comm);
}

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
    calls++;
    return PMPI_Irecv(buffer, count, type, from, tag, comm, request);
}

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    calls++;
#ifdef REPLACES
    MPI_Request request;
    PMPI_Isend(buffer, count, type, to, tag, comm, &request);
    return PMPI_Wait(&request, MPI_STATUS_IGNORE);
#else
    return PMPI_Send(buffer, count, type, to, tag, comm);
#endif
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    calls++;
    return PMPI_Wait(request, status);
}

/* The last call of rank 0 before it hangs. */
int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
    printf("ready %d\n", calls);
    fflush(stdout);
    return PMPI_Recv(buffer, count, type, from, tag, comm, status);
}
