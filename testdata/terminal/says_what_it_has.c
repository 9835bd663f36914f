/* Prints the kind of each stream without flushing, so the output appears only if the library flushes at line ends.
   Prints again when the window size has changed; exits on SIGINT. */
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *kind(int fd)
{
    return isatty(fd) ? "terminal" : "none";
}

int main(void)
{
    sigset_t signals;
    int signal = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGWINCH);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    do {
        struct winsize size = {0};
        ioctl(1, TIOCGWINSZ, &size);
        printf("stdin %s, stdout %s of %d by %d, stderr %s.\n", kind(0), kind(1), size.ws_row, size.ws_col, kind(2));
        sigwait(&signals, &signal);
    } while (signal != SIGINT);
    return 0;
}
