/* Becomes the owner of its file, where it has the setuid bit, says who it is, and lives on. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    uid_t before = getuid();
    if (setuid(geteuid()) != 0)
        return 9;
    printf("%s %d\n", getuid() == before ? "same" : "other", (int)getpid());
    fflush(stdout);
    sleep(1000);
    return 0;
}
