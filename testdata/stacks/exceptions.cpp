// Sleeps in a destructor that runs because of an exception, called through templates and a lambda.
#include <cstdio>
#include <stdexcept>
#include <unistd.h>
#include <vector>

namespace solver {

struct Guard {
    ~Guard() {
        std::puts("ready");
        std::fflush(stdout);
        sleep(1000);
    }
};

template <typename Value> struct Mesh {
    std::vector<Value> values;

    __attribute__((noinline)) void refine(int depth) {
        Guard guard;
        if (depth == 0) {
            throw std::runtime_error("no more");
        }
        refine(depth - 1);
    }
};

} // namespace solver

int main() {
    auto run = [](auto &mesh) { mesh.refine(0); };
    solver::Mesh<double> mesh;
    try {
        run(mesh);
    } catch (const std::exception &) {
    }
}
