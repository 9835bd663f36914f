//! Different options and variables for the same thing.

use super::*;

#[test]
fn the_command_line_beats_variables_that_say_it_in_another_way() {
    check(&[
        ("SLURM_DEBUG=1", "srun -Q a", "n=1"),
        ("SLURM_DEBUG=1", "srun a", "n=1 verbose"),
        (
            "HYDRA_MAPPING=socket",
            "mpiexec -npernode 2 a",
            "n=- map=ppr:2:node",
        ),
        (
            "OMPI_MCA_rmaps_base_mapping_policy=core:PE=2",
            "mpirun -npernode 2 a : -npernode 1 b",
            "n=- n=- map=ppr:2:node",
        ),
        (
            "HYDRA_BINDING=core",
            "mpiexec -bind-to user:0 a",
            "n=- list",
        ),
        (
            "SLURM_CPU_BIND=map_cpu:0",
            "srun --cpu-bind=cores a",
            "n=1 bind=core",
        ),
        (
            "RALLY_MAP_BY=core",
            "rally run --per-node 2 a",
            "n=- map=ppr:2:node",
        ),
        (
            "RALLY_BIND_TO=core",
            "rally run --bind-list 0 a",
            "n=- list",
        ),
        (
            "RALLY_HOSTFILE=missing",
            "rally run --host localhost:2 a",
            "n=- slots=2",
        ),
        (
            "RALLY_HOSTFILE=missing",
            "rally run a",
            "error: cannot read the host file `missing`: No such file or directory (os error 2)",
        ),
    ]);
}

#[test]
fn gpus_are_those_of_the_command_line() {
    let of = |variables: &str, line: &str| place(variables).run(line).spec.gpus.unwrap().share;
    let (each, all) = (
        dvm::spec::GpuShare::Each as fn(u32) -> _,
        dvm::spec::GpuShare::Together as fn(u32) -> _,
    );
    let cases = [
        ("SLURM_GPUS_PER_TASK=1", "srun a", each(1)),
        ("SLURM_GPUS_PER_TASK=1", "srun --gpus=2 a", all(2)),
        ("SLURM_GPUS_PER_TASK=1", "srun --gres=gpu:2 a", all(2)),
        ("SLURM_GPUS=2", "srun --gpus-per-task=1 a", each(1)),
        ("", "srun --gpus=2 --gpus-per-task=1 a", each(1)),
    ];
    for (variables, line, expected) in cases {
        assert_eq!(of(variables, line), expected, "{variables}: {line}");
    }
}

#[test]
fn of_several_exports_the_strongest_counts() {
    let of = |variables: &str, line: &str| {
        let run = place(variables).run(line);
        let names = run.spec.apps[0].env.iter();
        let names = names.filter(|(name, _)| matches!(name.to_str(), Some("A" | "X" | "Y")));
        names
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let cases = [
        ("SLURM_EXPORT_ENV=NONE,X=1", "srun a", "X=1"),
        ("SLURM_EXPORT_ENV=NONE,X=1", "srun --export=ALL a", "A=1"),
        (
            "SLURM_EXPORT_ENV=NONE,X=1 SRUN_EXPORT_ENV=ALL,Y=2",
            "srun a",
            "A=1 Y=2",
        ),
        ("", "srun --export=NONE,X=1 --export=ALL,Y=2 a", "A=1 Y=2"),
    ];
    for (variables, line, expected) in cases {
        assert_eq!(of(variables, line), expected, "{variables}: {line}");
    }
}
