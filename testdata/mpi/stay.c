/* Ranks that know each other, and stay until they are ended. */
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    say(MPI_COMM_WORLD, "here");
    for (;;)
        pause();
}
