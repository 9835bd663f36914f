/* What event handlers and other callbacks tell the thread that waits for them. */
#ifndef WAITS_H
#define WAITS_H

#include "../pmix/check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Waits until a condition holds that depends on what callbacks change under the lock. */
#define WAIT_UNTIL(where, condition)               \
    do {                                           \
        AT(where);                                 \
        pthread_mutex_lock(&lock);                 \
        while (!(condition)) {                     \
            pthread_cond_wait(&changed, &lock);    \
        }                                          \
        pthread_mutex_unlock(&lock);               \
    } while (0)

/* Ends a change that was made under the lock. */
MAYBE_UNUSED static void tell(void)
{
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Ends the handling of an event. */
MAYBE_UNUSED static void handled(pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    if (done != NULL) {
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
    }
}

#endif
