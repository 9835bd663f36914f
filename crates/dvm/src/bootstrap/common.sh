size=@SIZE@ modified='@MODIFIED@' argument=@ARGUMENT@ own=@OWN@
say() { printf '\n@rally %s\n' "$*"; }
# Whether a file has the size and the time of the launcher's: then it is the same file, or a copy that kept the time. The hash of a
# large program takes as long as all the rest. If the contents differ nevertheless, the daemon says so and exits.
same() { [ "$(stat -c '%s %Y' "$1" 2>/dev/null)" = "$size $modified" ]; }
runs() { w=$(LC_ALL=C "$1" --version 2>&1 </dev/null); }
# Whether the kernel executes programs for the launcher's processor. Linux has this file since 6.1. Each program that a script
# runs costs more than a millisecond, and many nodes may share a processor.
suits() { read -r arch </proc/sys/kernel/arch && [ "$arch" = '@ARCH@' ]; } 2>/dev/null
# Whether the node has the program at the launcher's path.
present() { [ -x "$own" ] && same "$own" && { suits || runs "$own"; }; }
