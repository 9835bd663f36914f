/*
 * The program recorded in `stack.gz`: a thread that waits in a signal handler. The signal has interrupted a function that
 * another function has jumped to. It uses no C library, so that the whole program is small.
 *
 *   aarch64-linux-gnu-gcc -O2 -g -static -nostdlib -ffreestanding -mbranch-protection=standard -fno-stack-protector \
 *       -Wl,--build-id=none -ffile-prefix-map="$PWD"=/home/u -o program stack.c
 *   python3 record.py program | gzip -9n >stack.gz
 *   gzip -9n program
 */
#define NOINLINE __attribute__((noinline, noclone))

static long call(long number, long first, long second, long third, long fourth)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    register long x3 __asm__("x3") = fourth;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory", "cc");
    return x0;
}

struct action {
    void (*handler)(int);
    unsigned long flags, restorer, mask;
};

volatile int begun;

/* ppoll without descriptors and without a timeout. */
NOINLINE void wait_for_ever(void)
{
    begun = 1;
    call(73, 0, 0, 0, 0);
    begun = 2;
}

NOINLINE void handler(int signal)
{
    begun = signal;
    wait_for_ever();
    begun = 3;
}

NOINLINE int interrupted(volatile int *loops)
{
    call(129, call(172, 0, 0, 0, 0), 10, 0, 0);
    return ++*loops;
}

NOINLINE int left_by_a_jump(volatile int *loops)
{
    *loops += 1;
    return interrupted(loops);
}

NOINLINE int outer(int loops)
{
    volatile int count = loops;
    int sum = left_by_a_jump(&count) + count;
    return sum + begun;
}

NOINLINE void begin(void)
{
    struct action action = {handler, 0, 0, 0};
    call(134, 10, (long)&action, 0, 8);
    call(94, outer(3), 0, 0, 0);
}

__asm__(".global _start\n"
        ".type _start, %function\n"
        "_start:\n"
        ".cfi_startproc\n"
        ".cfi_undefined x30\n"
        "mov x29, #0\n"
        "mov x30, #0\n"
        "bl begin\n"
        ".cfi_endproc\n"
        ".size _start, . - _start\n");
