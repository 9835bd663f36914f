/* A log of the events that a process has received, for programs about events. */
#ifndef EVENT_H
#define EVENT_H

#include "check.h"

/* Codes of the tests; the library defines none below this one. */
#define EVENT(n) (PMIX_EXTERNAL_ERR_BASE - 100 - (n))

struct seen {
    int handler;
    pmix_status_t code;
    pmix_proc_t source;
    uint32_t number;
};

static pthread_mutex_t seen_lock MAYBE_UNUSED = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t seen_changed MAYBE_UNUSED = PTHREAD_COND_INITIALIZER;
static struct seen seen[1024] MAYBE_UNUSED;
static int seen_count MAYBE_UNUSED;

MAYBE_UNUSED static void note(int handler, pmix_status_t code, const pmix_proc_t *source, const pmix_info_t *info,
                              size_t count)
{
    const pmix_value_t *number = value_among(info, count, "event.number");

    pthread_mutex_lock(&seen_lock);
    if (seen_count < (int)(sizeof(seen) / sizeof(seen[0]))) {
        seen[seen_count].handler = handler;
        seen[seen_count].code = code;
        seen[seen_count].source = *source;
        seen[seen_count].number = number == NULL ? UINT32_MAX : number->data.uint32;
        seen_count++;
    }
    pthread_cond_broadcast(&seen_changed);
    pthread_mutex_unlock(&seen_lock);
}

/* The number of times that a handler has seen a code; -1 means any handler. */
MAYBE_UNUSED static int times_seen(int handler, pmix_status_t code)
{
    int times = 0;

    for (int i = 0; i < seen_count; i++) {
        times += seen[i].code == code && (handler == -1 || seen[i].handler == handler);
    }
    return times;
}

MAYBE_UNUSED static int count_seen(int handler, pmix_status_t code)
{
    int times;

    pthread_mutex_lock(&seen_lock);
    times = times_seen(handler, code);
    pthread_mutex_unlock(&seen_lock);
    return times;
}

/* Waits until a code has been seen this many times, and returns the last one. */
MAYBE_UNUSED static struct seen wait_seen(int handler, pmix_status_t code, int times)
{
    struct seen last;

    memset(&last, 0, sizeof(last));
    AT("wait for an event");
    pthread_mutex_lock(&seen_lock);
    while (times_seen(handler, code) < times) {
        pthread_cond_wait(&seen_changed, &seen_lock);
    }
    for (int i = 0; i < seen_count; i++) {
        if (seen[i].code == code && (handler == -1 || seen[i].handler == handler)) {
            last = seen[i];
        }
    }
    pthread_mutex_unlock(&seen_lock);
    return last;
}

/* Handlers that log the event and then pass it on to the next handler, or stop it. */
#define HANDLER(name, number_of_handler, verdict)                                                                \
    MAYBE_UNUSED static void name(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[],  \
                                  size_t count, pmix_info_t *results, size_t nresults,                          \
                                  pmix_event_notification_cbfunc_fn_t done, void *cbdata)                       \
    {                                                                                                           \
        (void)id;                                                                                               \
        (void)results;                                                                                          \
        (void)nresults;                                                                                         \
        note((number_of_handler), code, source, info, count);                                                   \
        if (done != NULL) {                                                                                     \
            done((verdict), NULL, 0, NULL, NULL, cbdata);                                                       \
        }                                                                                                       \
    }

HANDLER(on_first, 1, PMIX_EVENT_NO_ACTION_TAKEN)
HANDLER(on_second, 2, PMIX_EVENT_NO_ACTION_TAKEN)
HANDLER(on_third, 3, PMIX_EVENT_NO_ACTION_TAKEN)
HANDLER(on_final, 4, PMIX_EVENT_ACTION_COMPLETE)

/* Sends an event that carries a number. */
MAYBE_UNUSED static void send_number(pmix_status_t code, pmix_data_range_t range, uint32_t number)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, "event.number", &number, PMIX_UINT32);
    notify(code, range, &info, 1);
}

/* Sends an event with a number, and forbids caching it for later registrations. */
MAYBE_UNUSED static void send_unkept(pmix_status_t code, pmix_data_range_t range, uint32_t number)
{
    pmix_info_t info[2];
    bool yes = true;

    PMIX_INFO_LOAD(&info[0], "event.number", &number, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_EVENT_DO_NOT_CACHE, &yes, PMIX_BOOL);
    notify(code, range, info, 2);
}

/* Sends an event with a number to these processes only. */
MAYBE_UNUSED static void send_to(pmix_status_t code, const pmix_proc_t *procs, size_t count, uint32_t number)
{
    pmix_info_t info[2];
    pmix_data_array_t array = {.type = PMIX_PROC, .size = count, .array = (void *)(uintptr_t)procs};

    PMIX_INFO_LOAD(&info[0], "event.number", &number, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_EVENT_CUSTOM_RANGE, &array, PMIX_DATA_ARRAY);
    notify(code, PMIX_RANGE_CUSTOM, info, 2);
}

#endif
