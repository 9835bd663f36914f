/* A launcher with MPIR symbols whose mistakes are chosen by its first argument. It starts itself as two ranks, which sleep.

   none   no mistake; the breakpoint is called by a second thread, and the table is filled on request, by the FIFO
   free   the ranks are not held
   order  the rows are not in the order of the ranks
   state  the state is never set
   crash  it crashes when the debugger has gone on */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

MPIR_PROCDESC *MPIR_proctable;
int MPIR_proctable_size;
volatile int MPIR_being_debugged;
volatile int MPIR_debug_state;
int MPIR_i_am_starter;
char MPIR_attach_fifo[256];

__attribute__((noinline)) void MPIR_Breakpoint(void)
{
    __asm__ volatile("");
}

static MPIR_PROCDESC rows[2];
static const char *mistake;
static char program[4096];

static int start(int rank)
{
    char number[8];
    snprintf(number, sizeof number, "%d", rank);
    int pid = fork();
    if (pid == 0) {
        setenv("PMI_RANK", number, 1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int is_held = MPIR_being_debugged && strcmp(mistake, "free") != 0;
        execl(program, program, is_held ? "held" : "running", (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void announce(void)
{
    MPIR_proctable = rows;
    MPIR_proctable_size = 2;
    if (strcmp(mistake, "state") != 0)
        MPIR_debug_state = 1;
    MPIR_Breakpoint();
}

static void *serve(void *unused)
{
    (void)unused;
    if (MPIR_being_debugged) {
        announce();
        for (int rank = 0; rank < 2; rank++)
            kill(rows[rank].pid, SIGCONT);
        if (strcmp(mistake, "crash") == 0)
            abort();
    }
    for (;;) {
        char byte = 0;
        int fifo = open(MPIR_attach_fifo, O_RDONLY);
        if (read(fifo, &byte, 1) == 1 && byte == 1 && MPIR_being_debugged)
            announce();
        close(fifo);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static char host[256];
    if (argc > 1 && (strcmp(argv[1], "held") == 0 || strcmp(argv[1], "running") == 0)) {
        if (strcmp(argv[1], "held") == 0)
            raise(SIGSTOP);
        sleep(1000);
        return 0;
    }
    mistake = argc > 1 ? argv[1] : "none";
    gethostname(host, sizeof host - 1);
    if (realpath("/proc/self/exe", program) == NULL)
        return 1;
    snprintf(MPIR_attach_fifo, sizeof MPIR_attach_fifo, "%s.%d", argv[0], (int)getpid());
    if (mkfifo(MPIR_attach_fifo, 0600) != 0)
        return 1;
    for (int rank = 0; rank < 2; rank++) {
        int row = strcmp(mistake, "order") == 0 ? 1 - rank : rank;
        rows[row] = (MPIR_PROCDESC){host, program, start(rank)};
    }
    if (MPIR_being_debugged && strcmp(mistake, "free") != 0)
        for (int rank = 0; rank < 2; rank++)
            waitpid(rows[rank].pid, NULL, WUNTRACED);
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    int status = 0, worst = 0;
    for (int rank = 0; rank < 2; rank++) {
        waitpid(rows[rank].pid, &status, 0);
        worst |= status;
    }
    unlink(MPIR_attach_fifo);
    return worst != 0;
}
