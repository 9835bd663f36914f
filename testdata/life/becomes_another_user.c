/* Switches to the owner of its executable (setuid bit), prints whether its user has changed and its pid, and sleeps. */
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
