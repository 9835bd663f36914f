/* Short forms for programs about groups. */
#ifndef GROUP_H
#define GROUP_H

#include "check.h"

/* Constructs a group with a context id and returns the id. */
MAYBE_UNUSED static size_t construct(const char *name, const pmix_proc_t *procs, size_t count)
{
    pmix_info_t info, *results = NULL;
    size_t nresults = 0, context;
    const pmix_value_t *value;
    bool yes = true;

    check_what = name;
    PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    CHECK_OK(PMIx_Group_construct(name, procs, count, &info, 1, &results, &nresults));
    value = value_among(results, nresults, PMIX_GROUP_CONTEXT_ID);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_SIZE);
    context = value->data.size;
    PMIX_INFO_FREE(results, nresults);
    return context;
}

/* Checks that all these processes have put the same number under a key. */
MAYBE_UNUSED static void expect_same(const char *key, size_t number, const pmix_proc_t *procs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK_NUMBER(number_of(&procs[i], key), number);
    }
}

#endif
