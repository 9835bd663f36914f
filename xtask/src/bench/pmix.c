/* The client of `cargo xtask bench pmix`, the same under every launcher.
 *
 *   modex BYTES    puts, fences with data, gets from every peer
 *   exchange BYTES like modex, without the gets
 *   fence COUNT    fences; rank 0 prints the mean in microseconds
 *   collect COUNT  like fence, but every rank puts 1 KiB before each fence, which collects the data
 *   init           every rank prints the clock before and after PMIx_Init, in nanoseconds
 *   wait           nothing
 *   spawns COUNT   rank 0 spawns one process at a time
 *
 * With one more argument, `modex`, `exchange` and `wait` print `ready` when all is done, and exit when rank 0 reads EOF
 * on its stdin; `spawns` also does so after a tenth of the spawns.
 */
#include <pmix.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pmix_proc_t me, all;
static unsigned size;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void must(pmix_status_t status, const char *what)
{
    if (status != PMIX_SUCCESS) {
        fprintf(stderr, "rank %u: %s: %s\n", me.rank, what, PMIx_Error_string(status));
        exit(1);
    }
}

static void fence(bool collect)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    must(PMIx_Fence(&all, 1, &info, collect ? 1 : 0), "fence");
}

/* All ranks wait here until rank 0 has something to read. */
static void pause_for_input(void)
{
    char byte;

    fence(false);
    if (me.rank == 0) {
        puts("ready");
        fflush(stdout);
        (void)!read(0, &byte, 1);
    }
    fence(false);
}

static void exchange(size_t bytes)
{
    pmix_value_t value;

    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = malloc(bytes);
    value.data.bo.size = bytes;
    memset(value.data.bo.bytes, (int)me.rank, bytes);
    must(PMIx_Put(PMIX_GLOBAL, "card", &value), "put");
    must(PMIx_Commit(), "commit");
    fence(true);
    free(value.data.bo.bytes);
}

static void get_all(size_t bytes)
{
    pmix_proc_t peer = me;
    pmix_value_t *value;

    for (unsigned step = 0; step < size; step++) {
        peer.rank = (me.rank + step) % size;
        must(PMIx_Get(&peer, "card", NULL, 0, &value), "get");
        if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != bytes ||
            (unsigned char)value->data.bo.bytes[0] != (unsigned char)peer.rank) {
            fprintf(stderr, "rank %u: what rank %u had put is not what came\n", me.rank, peer.rank);
            exit(1);
        }
        PMIX_VALUE_RELEASE(value);
    }
}

static void spawns(unsigned count)
{
    pmix_nspace_t child;
    pmix_app_t app;

    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup("/bin/true");
    app.argv = calloc(2, sizeof(char *));
    app.argv[0] = strdup("/bin/true");
    app.maxprocs = 1;
    for (unsigned done = 0; done < count; done++) {
        if (done == count / 10) {
            pause_for_input();
        }
        must(PMIx_Spawn(NULL, 0, &app, 1, child), "spawn");
    }
    pause_for_input();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "wait";
    size_t number = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    double before = now(), after;
    pmix_value_t *value;

    must(PMIx_Init(&me, NULL, 0), "init");
    after = now();
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    must(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &value), "size of the job");
    size = value->data.uint32;
    if (strcmp(mode, "init") == 0) {
        fence(false);
        printf("%.0f %.0f\n", before, after);
    } else if (strcmp(mode, "modex") == 0 || strcmp(mode, "exchange") == 0) {
        exchange(number);
        if (mode[0] == 'm') {
            get_all(number);
        }
    } else if (strcmp(mode, "fence") == 0 || strcmp(mode, "collect") == 0) {
        fence(false);
        before = now();
        for (size_t done = 0; done < number; done++) {
            if (mode[0] == 'c') {
                exchange(1024);
            } else {
                fence(false);
            }
        }
        if (me.rank == 0) {
            printf("%.3f\n", (now() - before) / 1e3 / (double)number);
        }
    } else if (strcmp(mode, "spawns") == 0) {
        spawns((unsigned)number);
    }
    if (argc > 3) {
        pause_for_input();
    }
    must(PMIx_Finalize(NULL, 0), "finalize");
    return 0;
}
