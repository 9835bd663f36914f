// The destructor of a global object waits for a lock that the program never released.
#include <cstdio>
#include <mutex>

static std::mutex lock;

struct Log {
    ~Log() { std::lock_guard<std::mutex> guard(lock); }
};

static Log journal;

int main() {
    lock.lock();
    std::printf("ready\n");
    std::fflush(stdout);
    return 0;
}
