//! Output and input, the life of a job, and tools.

use super::*;

#[test]
fn output_and_input() {
    check(&[
        (R, "-l a", "--label a"),
        (M, "--tag-output a", "--label=rank a"),
        (E, "-prepend-rank a", "--label=rank a"),
        (S, "--label a", "--label a"),
        (M, "--timestamp-output a", "--timestamps=yes a"),
        (M, "--merge-stderr-to-stdout a", "--merge-stderr a"),
        (
            M,
            "--output tag,timestamp,merge a",
            "--label=rank --timestamps=yes --merge-stderr a",
        ),
        (M, "--output TAG-DETAILED a", "--label=full a"),
        (
            M,
            "--output file=out%:nocopy a",
            "--output-file=out%%.%r.out --error-file=out%%.%r.err a",
        ),
        (
            M,
            "--output dir=d a",
            "--output-file=d/%j/rank.%r/stdout --error-file=d/%j/rank.%r/stderr a",
        ),
        (
            M,
            "--output x a",
            "error: `--output` cannot be `x`: known values are `tag`, `tag-detailed`, `tag-fullname`, `timestamp`, `merge-stderr-to-stdout`, `dir=NAME`, `file=NAME`",
        ),
        (
            M,
            "--output-filename o a",
            "--output-file=o.%r.out --error-file=o.%r.err a",
        ),
        (E, "-outfile-pattern o.%r.%h a", "--output-file=o.%r.%h a"),
        (E, "-errfile-pattern e.%3r.%g a", "--error-file=e.%3r.%j a"),
        (E, "-outfile-pattern o.%p a", "--output-file=o.0 a"),
        (
            E,
            "-outfile-pattern o.% a",
            "error: `-outfile-pattern` cannot be `o.%`: a lone `%` ends the pattern (write `%%` for a percent sign)",
        ),
        (
            S,
            "-o out.%t.%N -e none a",
            "--slurm-output=out.%t.%N --slurm-error=none a",
        ),
        (S, "-o all a", "--slurm-output=all a"),
        (S, "--output=o.%s a", "--slurm-output=o.%s a"),
        (
            R,
            "-o out.%r -e err.%r a",
            "--output-file=out.%r --error-file=err.%r a",
        ),
        (R, "--stdin all a", "--stdin=all a"),
        (R, "-stdin none a", "--stdin=none a"),
        (S, "-i none a", "--slurm-input=none a"),
        (S, "-i 3 a", "--slurm-input=3 a"),
        (S, "--input=f a", "--slurm-input=f a"),
        (E, "-i 3 a", "--stdin=3 a"),
        (R, "-i f a", "--input=f a"),
        (R, "--input all a", "--input=all a"),
        (R, "--pty a", "--pty a"),
        (R, "--pty 1 a", "--pty=1 a"),
        (R, "--pty=1 a", "--pty=1 a"),
        (S, "-u a", "--line-buffered=yes a"),
        (R, "--json a", "--json a"),
        (
            M,
            "--xml a",
            "error: `--xml` is not supported: output is text or JSON lines",
        ),
        (
            M,
            "--xterm 0 a",
            "error: `--xterm` is not supported: no windows are opened",
        ),
        (
            E,
            "-prepend-pattern %r a",
            "error: `-prepend-pattern` is not supported: labels have fixed forms",
        ),
    ]);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn life_and_tools() {
    check(&[
        (M, "--timeout 10 a", "--timeout=10 a"),
        (S, "-t 1:30 a", "--timeout=90 a"),
        (S, "-t 0 a", "--timeout=0 a"),
        (
            S,
            "-t x a",
            "error: `-t` cannot be `x`: it is not a time in one of srun's forms (minutes, minutes:seconds, hours:minutes:seconds, days-hours)",
        ),
        (R, "--grace 2 a", "--grace=2 a"),
        (R, "--kill-on-bad-exit=no a", "--kill-on-bad-exit=no a"),
        (S, "-K a", "--kill-on-bad-exit a"),
        (S, "-K0 a", "--kill-on-bad-exit=0 a"),
        (M, "-K a", "--kill-on-bad-exit=yes a"),
        (E, "-disable-auto-cleanup a", "--kill-on-bad-exit=no a"),
        (M, "--enable-recovery a", "--kill-on-bad-exit=no a"),
        (R, "--stop-on-exec a", "--stop-on-exec a"),
        (
            E,
            "-gtool x a",
            "error: `-gtool` is not supported: debuggers are not started from here",
        ),
        (
            E,
            "-gdb a",
            "error: `-gdb` is not supported: debuggers are not started from here",
        ),
        (
            M,
            "--debug a",
            "error: `--debug` is not supported: debuggers are not started from here",
        ),
        (
            M,
            "-tv a",
            "error: `-tv` is not supported: debuggers are not started from here",
        ),
        (E, "-launcher fork a", "--bootstrap=fork a"),
        (E, "-launcher srun a", "--bootstrap=slurm a"),
        (E, "-launcher pbsdsh a", "--bootstrap=pbs a"),
        (E, "-launcher sge a", "a [ignored: -launcher sge]"),
        (M, "--mca plm rsh a", "--bootstrap=ssh a"),
        (M, "--mca plm tm a", "--bootstrap=pbs a"),
        (M, "--mca plm ^slurm a", "a [ignored: --mca plm ^slurm]"),
        (E, "-bootstrap rsh a", "--bootstrap=ssh a"),
        (R, "--bootstrap ssh a", "--bootstrap=ssh a"),
        (
            E,
            "-launcher-exec x -rmk user a",
            "--ssh=x a [ignored: -rmk user]",
        ),
        (R, "-qv a", "--quiet --verbose a"),
        (R, "-vvv a", "--verbose --verbose --verbose a"),
        (M, "--allow-run-as-root a", "a"),
        (M, "-prefix /opt a", "a [ignored: -prefix /opt]"),
        (
            M,
            "--mca btl tcp,self a",
            "--set-env=OMPI_MCA_btl=tcp,self a",
        ),
        (
            M,
            "--mca btl self a : --mca pml ob1 b : --gmca x y c",
            "--set-env=OMPI_MCA_btl=self a : --set-env=OMPI_MCA_btl=self --set-env=OMPI_MCA_pml=ob1 b : \
             --set-env=OMPI_MCA_btl=self --set-env=OMPI_MCA_x=y c",
        ),
        (M, "--prtemca btl self a", "a [ignored: --prtemca btl self]"),
        (M, "--mca plm_rsh_agent ssh:rsh a", "--ssh=ssh a"),
        (M, "--mca plm_rsh_no_tree_spawn 1 a", "--tree-start=off a"),
        (
            M,
            "--mca plm_base_verbose 5 a",
            "a [ignored: --mca plm_base_verbose 5]",
        ),
        (
            M,
            "--with-ft ulfm a",
            "--set-env=OMPI_MCA_mpi_ft_enable=1 --kill-on-bad-exit=no a",
        ),
        (M, "--with-ft no a", "a"),
        (M, "--with-ft magic a", "a [ignored: --with-ft magic]"),
        (
            M,
            "--mca btl ^openib -pmixmca k v a",
            "--set-env=OMPI_MCA_btl=^openib a [ignored: -pmixmca k v]",
        ),
        (
            M,
            "--mca rmaps_base_mapping_policy node a",
            "--map-by=node a",
        ),
        (
            M,
            "--mca hwloc_base_binding_policy none a",
            "--bind-to=none a",
        ),
        (
            M,
            "--mca rmaps_base_oversubscribe 1 a",
            "--oversubscribe=yes a",
        ),
        (M, "--mca orte_tag_output 1 a", "--label=rank a"),
        (M, "--mca orte_tag_output 0 a", "--label=none a"),
        (
            S,
            "-p debug -J x --mpi=pmix --exclusive a",
            "--job-name=x a [ignored: -p debug, --exclusive]",
        ),
        (R, "--personality srun -c 2 a", "--map-by=:PE=2 a"),
        (R, "--personality ompi -c 2 a", "--np=2 a"),
        (R, "--personality x a", "error: there is no personality `x`"),
    ]);
}
