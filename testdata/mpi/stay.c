/* Ranks that synchronize once and then wait until they are killed. */
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    say(MPI_COMM_WORLD, "here");
    for (;;)
        pause();
}
