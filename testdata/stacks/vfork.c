/* Its child runs on its stack and sleeps, and it waits for that. */
#include <unistd.h>

__attribute__((noinline)) static void starter(void) {
    if (vfork() == 0) {
        write(1, "ready\n", 6);
        for (;;) {
            pause();
        }
    }
}

int main(void) {
    starter();
}
