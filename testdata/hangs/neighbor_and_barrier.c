/* Every rank is a neighbor of all others. Rank 3 is in a barrier that the others do not call; they call a neighbor collective. */
#include "begin.h"

int main(void) {
    int others[3], mine[3] = {0}, theirs[3], count = 0;
    MPI_Comm graph;
    begin();
    for (int other = 0; other < ranks; other++)
        if (other != rank)
            others[count++] = other;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, count, others, MPI_UNWEIGHTED, count, others, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph);
    if (rank == 3)
        MPI_Barrier(graph);
    MPI_Neighbor_alltoall(mine, 1, MPI_INT, theirs, 1, MPI_INT, graph);
    MPI_Finalize();
    return 0;
}
