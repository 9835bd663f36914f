//! Placement and binding of procs.

use super::*;

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn placement() {
    check(&[
        (R, "--map-by ppr:2:package a", "--map-by=ppr:2:package a"),
        (R, "--map-by=core a", "--map-by=core a"),
        (E, "-map-by socket a", "--map-by=socket a"),
        (E, "-bind-to core:2 a", "--bind-to=core:2 a"),
        (R, "--rank-by node a", "--rank-by=node a"),
        (M, "--bynode a", "--map-by=node a"),
        (M, "--bind-to-core a", "--bind-to=core a"),
        (M, "--use-hwthread-cpus a", "--map-by=:HWTCPUS a"),
        (M, "--rankfile f a", "--map-by=rankfile:FILE=f a"),
        (M, "--cpu-set 0,2 a", "--map-by=pe-list=0,2 a"),
        (M, "--oversubscribe a", "--oversubscribe a"),
        (M, "--nooversubscribe a", "--oversubscribe=no a"),
        (S, "-O a", "--oversubscribe=yes a"),
        (S, "--overcommit a", "--oversubscribe=yes a"),
        (M, "--report-bindings a", "--display=bindings a"),
        (M, "--display-map a", "--display=map a"),
        (
            M,
            "--display map,bind,alloc a",
            "--display=map --display=bindings --display=allocation a",
        ),
        (M, "--display MAP-DEVEL a", "--display=map a"),
        (
            M,
            "--display x a",
            "error: `--display` cannot be `x`: known values are `map`, `bindings`, `allocation`",
        ),
        (
            S,
            "--cpu-bind=v,cores a",
            "--display=bindings --bind-to=core a",
        ),
        (S, "--cpu-bind=none a", "--bind-to=none a"),
        (S, "--cpu-bind=map_cpu:0,2 a", "--bind-list=0,2 a"),
        (
            S,
            "--cpu-bind=v,mask_cpu:0x3,c*2 a",
            "--display=bindings --bind-list=0+1,2+3,2+3 a",
        ),
        (S, "--cpu-bind=map_ldom:1*2,0 a", "--bind-list=numa:1,1,0 a"),
        (
            S,
            "--cpu-bind=map_cpu:0,x a",
            "error: `--cpu-bind` cannot be `map_cpu:0,x`: it is not a list of PUs for each rank (`0,2`, `0+1,2+3`, `numa:0,1`, or `each`)",
        ),
        (
            S,
            "--cpu-bind=corse a",
            "error: `--cpu-bind` cannot be `corse`: known values are `none`, `cores`, `threads`, `sockets`, `ldoms`, `rank`, `map_cpu:LIST`, `mask_cpu:LIST`, `map_ldom:LIST`, `mask_ldom:LIST`, `verbose`, `quiet`",
        ),
        (E, "-bind-to rr a", "--bind-list=each a"),
        (E, "-bind-to user:0+2,1,3 a", "--bind-list=0+2,1,3 a"),
        (
            M,
            "--bind-to core:REPORT a",
            "--display=bindings --bind-to=core a",
        ),
        (
            M,
            "--map-by core:PE=2:NOLOCAL a",
            "--nolocal --map-by=core:PE=2 a",
        ),
        (
            M,
            "--map-by slot:DISPLAY:donotlaunch a",
            "--display=map --dry-run --map-by=slot a",
        ),
        (
            M,
            "--map-by dist:span a",
            "error: `--map-by dist:span` is not supported: the distance to devices is not known",
        ),
        (
            M,
            "--map-by rankfile:file=/a:DISPLAY a",
            "--map-by=rankfile:file=/a:DISPLAY a",
        ),
        (M, "--rank-by core a", "--rank-by=core a"),
        (M, "--rank-by package:SPAN a", "--rank-by=package a"),
        (S, "-m cyclic a", "--map-by=node a"),
        (S, "-m block:cyclic a", "--map-by=package a"),
        (S, "-m block a", "--map-by=slot a"),
        (S, "-m plane=2 a", "--map-by=slot a"),
        (M, "--rtos donotlaunch a", "--dry-run a"),
        (
            M,
            "--runtime-options donotlaunch,recoverable a",
            "--dry-run --kill-on-bad-exit=no a",
        ),
        (
            M,
            "--rtos error-nonzero-status=0 a",
            "--kill-on-bad-exit=no a",
        ),
        (
            M,
            "--rtos show-progress a",
            "a [ignored: --rtos show-progress]",
        ),
        (
            M,
            "--rtos x a",
            "error: `--rtos` cannot be `x`: known values are `donotlaunch`, `error-nonzero-status=BOOL`, `recoverable`, `continuous`, `stop-on-exec`, `stop-in-init`, `stop-in-app`",
        ),
        (M, "--do-not-launch a", "--dry-run a"),
        (S, "--test-only a", "--dry-run a"),
        (R, "--dry-run --explain a", "--dry-run --explain a"),
        (
            E,
            "-rankmap 0,1 a",
            "error: `-rankmap` is not supported: the rank maps of Hydra are not read",
        ),
    ]);
}
