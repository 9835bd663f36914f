// Rank 3 waits for a condition in C++ with a timeout of a second, again and again.
#include <condition_variable>
#include <cstdio>
#include <mpi.h>
#include <mutex>

static std::mutex lock;
static std::condition_variable news;
static bool told;

int main(int, char **) {
    int rank;
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    std::printf("ready\n");
    std::fflush(stdout);
    std::unique_lock<std::mutex> guard(lock);
    while (rank == 3 && !told)
        news.wait_for(guard, std::chrono::seconds(1));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
