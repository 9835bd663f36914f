/* The whole interface of PMI-2, called through a client library that is independent of ours. */
#include "check.h"
#include "pmi2.h"

static void names(int rank)
{
    char port[MAX_VALUE] = "";

    if (rank == 0) {
        CHECK(PMI2_Nameserv_lookup("two's ocean", NULL, port, sizeof port) != PMI2_SUCCESS);
        CHECK(PMI2_Nameserv_publish("two's ocean", NULL, "tag=0;of $x;;y") == PMI2_SUCCESS);
        CHECK(PMI2_Nameserv_publish("two's ocean", NULL, "another") != PMI2_SUCCESS);
    }
    CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    CHECK(PMI2_Nameserv_lookup("two's ocean", NULL, port, sizeof port) == PMI2_SUCCESS);
    CHECK_TEXT(port, "tag=0;of $x;;y");
    CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    if (rank == 0) {
        CHECK(PMI2_Nameserv_unpublish("two's ocean", NULL) == PMI2_SUCCESS);
        CHECK(PMI2_Nameserv_unpublish("two's ocean", NULL) != PMI2_SUCCESS);
        CHECK(PMI2_Nameserv_lookup("two's ocean", NULL, port, sizeof port) != PMI2_SUCCESS);
    }
}

static void values(const char *job, int rank, int size)
{
    char key[64], value[MAX_VALUE], expected[MAX_VALUE], large[MAX_VALUE + 2];
    int length;

    for (int fence = 0; fence < 3; fence++) {
        snprintf(key, sizeof key, "key-%d-%d", fence, rank);
        snprintf(value, sizeof value, "value; %d;;=%d ", fence, rank);
        CHECK(PMI2_KVS_Put(key, value) == PMI2_SUCCESS);
        CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
        for (int other = 0; other < size; other++) {
            snprintf(key, sizeof key, "key-%d-%d", fence, other);
            snprintf(expected, sizeof expected, "value; %d;;=%d ", fence, other);
            CHECK(PMI2_KVS_Get(job, other, key, value, sizeof value, &length) == PMI2_SUCCESS);
            CHECK_TEXT(value, expected);
            CHECK(length == (int) strlen(expected));
        }
    }
    CHECK(PMI2_KVS_Get(job, -1, "nobody has put this", value, sizeof value, &length) != PMI2_SUCCESS);
    CHECK(PMI2_KVS_Get("another job", -1, "key-0-0", value, sizeof value, &length) != PMI2_SUCCESS);
    memset(large, 'x', sizeof large);
    large[1023] = 0;
    CHECK(PMI2_KVS_Put("large", large) == PMI2_SUCCESS);
    CHECK(PMI2_KVS_Get(job, -1, "large", value, sizeof value, &length) == PMI2_SUCCESS && length == 1023);
    CHECK(PMI2_KVS_Put("PMI_process_mapping", "mine") != PMI2_SUCCESS);
}

static void attributes(int size)
{
    char value[MAX_VALUE];
    int found, array[8], length;

    CHECK(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found) == PMI2_SUCCESS);
    CHECK(found && strncmp(value, "(vector,(", 9) == 0);
    CHECK(PMI2_Info_GetJobAttr("universeSize", value, sizeof value, &found) == PMI2_SUCCESS);
    CHECK(found && atoi(value) >= size);
    CHECK(PMI2_Info_GetJobAttr("nobody's", value, sizeof value, &found) == PMI2_SUCCESS);
    CHECK(!found);
    CHECK(PMI2_Info_GetNodeAttr("never", value, sizeof value, &found, 0) == PMI2_SUCCESS);
    CHECK(!found);
    /* On each node, the last rank puts the attributes that the other ranks wait for. */
    if (atoi(getenv("MPI_LOCALRANKID")) == atoi(getenv("MPI_LOCALNRANKS")) - 1) {
        CHECK(PMI2_Info_PutNodeAttr("segment", "3,5,8") == PMI2_SUCCESS);
        CHECK(PMI2_Info_PutNodeAttr("node", getenv("PMIX_HOSTNAME")) == PMI2_SUCCESS);
    }
    CHECK(PMI2_Info_GetNodeAttr("node", value, sizeof value, &found, 1) == PMI2_SUCCESS);
    CHECK(found);
    CHECK_TEXT(value, getenv("PMIX_HOSTNAME"));
    CHECK(PMI2_Info_GetNodeAttr("segment", value, sizeof value, &found, 1) == PMI2_SUCCESS);
    CHECK(found);
    CHECK_TEXT(value, "3,5,8");
    CHECK(PMI2_Info_GetNodeAttrIntArray("segment", array, 8, &length, &found) == PMI2_SUCCESS);
    CHECK(found && length == 3 && array[0] == 3 && array[1] == 5 && array[2] == 8);
}

static void spawn(const char *program)
{
    const char *programs[] = {program, program}, *args[] = {"child", "a; b", NULL};
    const char **all_args[] = {args, args};
    int counts[] = {2, 2}, errors[3], info_counts[] = {1, 0};
    const int ranks[] = {2, 1};
    struct info wdir = {.key = "wdir", .value = "/"}, parent = {.key = "PARENT_ROOT_PORT_NAME", .value = "tag#0;$"};
    const struct info *infos[] = {&wdir, NULL}, *preput[] = {&parent};
    char job[256];

    CHECK(PMI2_Job_Spawn(2, programs, counts, all_args, ranks, info_counts, infos, 1, preput, job, sizeof job, errors) ==
          PMI2_SUCCESS);
    programs[0] = "/nowhere/nothing";
    CHECK(PMI2_Job_Spawn(1, programs, counts, all_args, ranks, info_counts, infos, 1, preput, job, sizeof job, errors) !=
          PMI2_SUCCESS);
    CHECK(PMI2_Job_Connect(job, NULL) != PMI2_SUCCESS);
    CHECK(PMI2_Job_Disconnect(job) != PMI2_SUCCESS);
}

static void child(const char *job, int rank, int size, int appnum)
{
    char value[MAX_VALUE], directory[MAX_VALUE];
    int length;

    CHECK(size == 3);
    CHECK(appnum == (rank == 2));
    CHECK(PMI2_KVS_Get(job, -1, "PARENT_ROOT_PORT_NAME", value, sizeof value, &length) == PMI2_SUCCESS);
    CHECK_TEXT(value, "tag#0;$");
    CHECK((strcmp(getcwd(directory, sizeof directory), "/") == 0) == (appnum == 0));
    CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    printf("child %d of %d\n", rank, size);
}

int main(int argc, char **argv)
{
    char job[256];
    int spawned, size, rank, appnum;

    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum) == PMI2_SUCCESS);
    CHECK(PMI2_Job_GetId(job, sizeof job) == PMI2_SUCCESS);
    if (spawned) {
        CHECK(argc == 3);
        CHECK_TEXT(argv[2], "a; b");
        child(job, rank, size, appnum);
    } else {
        CHECK(rank == atoi(getenv("PMI_RANK")) && size == atoi(getenv("PMI_SIZE")));
        values(job, rank, size);
        attributes(size);
        names(rank);
        if (rank == 0)
            spawn(argv[0]);
        CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    }
    CHECK(PMI2_Finalize() == PMI2_SUCCESS);
    return 0;
}
