/* Information about a node, an application and the session, requested with the
 * qualifiers that select one of them.
 * run: 4
 * nodes: 4
 */
#include "check.h"

static pmix_value_t *with(const pmix_proc_t *proc, const char *key, pmix_info_t *info, size_t count)
{
    pmix_value_t *value = NULL;

    check_what = key;
    pmix_status_t status = PMIx_Get(proc, key, info, count, &value);
    if (status != PMIX_SUCCESS) {
        FAIL("get of %s with qualifiers: %s (%d)", key, PMIx_Error_string(status), status);
    }
    return value;
}

int main(void)
{
    pmix_proc_t all;
    pmix_info_t info[2];
    pmix_value_t *value;
    bool yes = true;
    uint32_t node, app = 0, session;
    char *host, *peers;

    start();
    all = peer(PMIX_RANK_WILDCARD);
    host = text_of(&me, PMIX_HOSTNAME);
    peers = text_of(&all, PMIX_LOCAL_PEERS);
    node = (uint32_t)number_of(&me, PMIX_NODEID);

    /* A node by its name. */
    PMIX_INFO_LOAD(&info[0], PMIX_NODE_INFO, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_HOSTNAME, host, PMIX_STRING);
    value = with(&all, PMIX_LOCAL_PEERS, info, 2);
    CHECK_TYPE(value, PMIX_STRING);
    CHECK_TEXT(value->data.string, peers);
    PMIX_VALUE_RELEASE(value);
    value = with(&all, PMIX_LOCAL_SIZE, info, 2);
    CHECK_NUMBER(number_in(value), number_of(&all, PMIX_LOCAL_SIZE));
    PMIX_VALUE_RELEASE(value);
    PMIX_INFO_DESTRUCT(&info[1]);

    /* The same node by its number. */
    PMIX_INFO_LOAD(&info[1], PMIX_NODEID, &node, PMIX_UINT32);
    value = with(&all, PMIX_LOCAL_SIZE, info, 2);
    CHECK_NUMBER(number_in(value), number_of(&all, PMIX_LOCAL_SIZE));
    PMIX_VALUE_RELEASE(value);

    /* The application by its number. */
    PMIX_INFO_LOAD(&info[0], PMIX_APP_INFO, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_APPNUM, &app, PMIX_UINT32);
    value = with(&all, PMIX_APP_SIZE, info, 2);
    CHECK_NUMBER(number_in(value), job_size);
    PMIX_VALUE_RELEASE(value);
    value = with(&all, PMIX_APPLDR, info, 2);
    CHECK_NUMBER(number_in(value), 0);
    PMIX_VALUE_RELEASE(value);

    /* The session; older libraries do not return its id. */
    if (library_at_least(5, 0, 0)) {
        session = (uint32_t)number_of(&all, PMIX_SESSION_ID);
        PMIX_INFO_LOAD(&info[0], PMIX_SESSION_INFO, &yes, PMIX_BOOL);
        PMIX_INFO_LOAD(&info[1], PMIX_SESSION_ID, &session, PMIX_UINT32);
        value = with(&all, PMIX_UNIV_SIZE, info, 2);
        CHECK_NUMBER(number_in(value), number_of(&all, PMIX_UNIV_SIZE));
        PMIX_VALUE_RELEASE(value);
    }

    free(host);
    free(peers);
    return finish();
}
