/* Put, commit, fence and get of the smallest and largest values of every scalar
 * type, of a peer and of the process itself.
 * run: 3
 * run: 1
 */
#include "check.h"

/* One key: its type, the function that fills it, and the one that compares it. */
#define SCALARS(S)                                                         \
    S("bool-true", PMIX_BOOL, flag, true)                                  \
    S("bool-false", PMIX_BOOL, flag, false)                                \
    S("byte", PMIX_BYTE, byte, 0xfe)                                       \
    S("size-0", PMIX_SIZE, size, 0)                                        \
    S("size-max", PMIX_SIZE, size, SIZE_MAX)                               \
    S("size-odd", PMIX_SIZE, size, SIZE_MAX - 127)                         \
    S("pid", PMIX_PID, pid, 4194303)                                       \
    S("int-min", PMIX_INT, integer, INT32_MIN)                             \
    S("int-max", PMIX_INT, integer, INT32_MAX)                             \
    S("int-minus", PMIX_INT, integer, -1)                                  \
    S("int8-min", PMIX_INT8, int8, INT8_MIN)                               \
    S("int16-min", PMIX_INT16, int16, INT16_MIN)                           \
    S("int16-max", PMIX_INT16, int16, INT16_MAX)                           \
    S("int32-min", PMIX_INT32, int32, INT32_MIN)                           \
    S("int32-300", PMIX_INT32, int32, 300)                                 \
    S("int64-min", PMIX_INT64, int64, INT64_MIN)                           \
    S("int64-max", PMIX_INT64, int64, INT64_MAX)                           \
    S("uint", PMIX_UINT, uint, 3000000000U)                                \
    S("uint8", PMIX_UINT8, uint8, UINT8_MAX)                               \
    S("uint16", PMIX_UINT16, uint16, UINT16_MAX)                           \
    S("uint32", PMIX_UINT32, uint32, UINT32_MAX)                           \
    S("uint64-max", PMIX_UINT64, uint64, UINT64_MAX)                       \
    S("uint64-7bit", PMIX_UINT64, uint64, UINT64_C(127))                   \
    S("uint64-8bit", PMIX_UINT64, uint64, UINT64_C(128))                   \
    S("uint64-56bit", PMIX_UINT64, uint64, (UINT64_C(1) << 56) - 1)        \
    S("uint64-57bit", PMIX_UINT64, uint64, UINT64_C(1) << 56)              \
    S("float", PMIX_FLOAT, fval, 0.15625F)                                 \
    S("float-minus", PMIX_FLOAT, fval, -1024.5F)                           \
    S("double", PMIX_DOUBLE, dval, 1234567.890625)                         \
    S("time", PMIX_TIME, time, 1700000000)                                 \
    S("status", PMIX_STATUS, status, PMIX_ERR_NOT_FOUND)                   \
    S("rank", PMIX_PROC_RANK, rank, 77)                                    \
    S("rank-wildcard", PMIX_PROC_RANK, rank, PMIX_RANK_WILDCARD)           \
    S("persist", PMIX_PERSIST, persist, PMIX_PERSIST_SESSION)              \
    S("scope", PMIX_SCOPE, scope, PMIX_GLOBAL)                             \
    S("range", PMIX_DATA_RANGE, range, PMIX_RANGE_CUSTOM)                  \
    S("proc-state", PMIX_PROC_STATE, state, PMIX_PROC_STATE_CALLED_ABORT)

/* Types of version 4 of the standard, or types that older libraries cannot put. */
#define LATER_SCALARS(S)                                                   \
    S("alloc", PMIX_ALLOC_DIRECTIVE, adir, PMIX_ALLOC_RELEASE)             \
    S("job-state", PMIX_JOB_STATE, jstate, PMIX_JOB_STATE_SUSPENDED)       \
    S("link-state", PMIX_LINK_STATE, linkstate, PMIX_LINK_UP)              \
    S("locality", PMIX_LOCTYPE, locality, PMIX_LOCALITY_SHARE_NODE)        \
    S("devtype", PMIX_DEVTYPE, devtype, PMIX_DEVTYPE_GPU)

#define PUT(name, kind, member, number)                        \
    memset(&value, 0, sizeof(value));                          \
    value.type = (kind);                                       \
    value.data.member = (number);                              \
    CHECK_OK(PMIx_Put(PMIX_GLOBAL, (name), &value));

#define GET(name, kind, member, number)                                                              \
    AT(name);                                                                                        \
    got = NULL;                                                                                      \
    CHECK_OK(PMIx_Get(&other, (name), NULL, 0, &got));                                               \
    CHECK_TYPE(got, kind);                                                                           \
    if (got->data.member != (number)) {                                                              \
        FAIL("%s of rank %u: expected " #number ", got %#llx", (name), (unsigned)other.rank,         \
             (unsigned long long)got->data.member);                                                  \
    }                                                                                                \
    PMIX_VALUE_RELEASE(got);

int main(void)
{
    pmix_value_t value, *got;
    pmix_proc_t other;

    start();
    SCALARS(PUT)
#if PMIX_VERSION_MAJOR >= 4
    LATER_SCALARS(PUT)
#endif
    memset(&value, 0, sizeof(value));
    value.type = PMIX_TIMEVAL;
    value.data.tv.tv_sec = 1700000001;
    value.data.tv.tv_usec = 999999;
    CHECK_OK(PMIx_Put(PMIX_GLOBAL, "timeval", &value));
    put_text(PMIX_GLOBAL, "empty", "");
    put_text(PMIX_GLOBAL, "text", "d\xc3\xa9j\xc3\xa0 vu, \"quoted\"\n\ttwo lines");
    CHECK_OK(PMIx_Commit());
    fence_data();

    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        char *text;

        other = peer(rank);
        SCALARS(GET)
#if PMIX_VERSION_MAJOR >= 4
        LATER_SCALARS(GET)
#endif
        CHECK_OK(PMIx_Get(&other, "timeval", NULL, 0, &got));
        CHECK_TYPE(got, PMIX_TIMEVAL);
        CHECK_NUMBER(got->data.tv.tv_sec, 1700000001);
        CHECK_NUMBER(got->data.tv.tv_usec, 999999);
        PMIX_VALUE_RELEASE(got);
        text = text_of(&other, "empty");
        CHECK_TEXT(text, "");
        free(text);
        text = text_of(&other, "text");
        CHECK_TEXT(text, "d\xc3\xa9j\xc3\xa0 vu, \"quoted\"\n\ttwo lines");
        free(text);
    }
    return finish();
}
